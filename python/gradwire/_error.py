from __future__ import annotations


class Error(Exception):
    """A failure of gradwire. ``code`` is one of invalid_argument, corrupt_payload, mismatch, unsupported,
    out_of_memory, cuda, communicator and timeout; the text says what was given, what is allowed and what to do."""

    code: str

    def __init__(self, text: str, code: str = "invalid_argument") -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[type[Error], tuple[str, str]]:
        return type(self), (str(self), self.code)
