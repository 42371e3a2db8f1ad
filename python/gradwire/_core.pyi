from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradwire._error import Error

__version__: str
has_gloo: bool

def encode(array: Any, spec: str, *, seed: int = 0, step: int = 0, tensor_id: int = 0) -> bytes:
    """The frame of ``array``: float32, float16 or bfloat16 in CPU memory, a NumPy array or a torch tensor, of any
    shape. ``spec`` is a method such as ``quant(bits=4)``, without modifiers."""

def decode(frame: bytes) -> np.ndarray:
    """What ``encode`` made of an array, flat; bfloat16 comes as float32. Raises Error (corrupt_payload)."""

def codecs() -> list[dict[str, Any]]:
    """Every method: name, version, summary, and its keys with their defaults."""

def check_spec(spec: str) -> str:
    """The canonical text of a whole spec. Raises Error that lists what is allowed."""

class Communicator:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def transport(self) -> str: ...
    def abort(self) -> None: ...

def make_gloo(rank: int, size: int, rendezvous: str, interface: str, timeout: float) -> Communicator: ...
def make_torch(collectives: Any, rank: int, size: int, timeout: float) -> Communicator:
    """``collectives.exchange(sends, receives)`` moves messages; see gradwire.torch._collectives."""

class Layout: ...

def make_layout(dtype: str, slots: Sequence[tuple[int, int]]) -> Layout: ...

class Averager:
    def __init__(
        self,
        comm: Communicator,
        names: Sequence[str],
        shapes: Sequence[Sequence[int]],
        dtypes: Sequence[str],
        spec: str,
        rules: Sequence[str],
        min_numel: int,
        seed: int,
        timeline: bool,
    ) -> None: ...
    def start(self, address: int, layout: Layout, last: bool, done: Callable[[Error | None], None]) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def residual(self, index: int) -> np.ndarray: ...
    def save_state(self) -> bytes: ...
    def load_state(self, states: Sequence[bytes]) -> None: ...
    def write_timeline(self, file: str) -> None: ...
