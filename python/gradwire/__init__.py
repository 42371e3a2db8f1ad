"""Compressed, overlapped gradient averaging: codecs on arrays here, PyTorch's DDP in ``gradwire.torch``."""

from gradwire._core import __version__, codecs, decode, encode
from gradwire._error import Error

__all__ = ["Error", "__version__", "codecs", "decode", "encode"]
