from __future__ import annotations

import json
import time
from types import TracebackType
from typing import IO, Any

import torch.distributed as dist

import gradwire
from gradwire.torch._attach import Handle


class Metrics:
    """The records of a run, as ``gradwire ab`` reads them (docs/cli.md, "metrics file"): only rank 0 writes. A context
    manager: leaving it writes the end record, and with an exception leaves it out, so that the run counts as failed."""

    def __init__(self, path: str, handle: Handle | None, **about: Any) -> None:
        self._handle = handle
        self._file: IO[str] | None = None
        self._begin = self._last = time.monotonic()
        self._before = {"raw_bytes": 0.0, "wire_bytes": 0.0, "exposed_seconds": 0.0}
        self._steps = 0
        if path and dist.get_rank() == 0:
            self._file = open(path, "w", encoding="utf-8", buffering=1)
        self._write(event="start", world=dist.get_world_size(), version=gradwire.__version__, device="cpu", **about)

    def step(self, loss: float) -> None:
        """Behind each optimizer step."""
        self._steps += 1
        now = time.monotonic()
        so_far = self._so_far()
        spent = {key: so_far[key] - self._before[key] for key in so_far}
        self._write(event="step", step=self._steps, loss=loss, seconds=now - self._last, **spent)
        self._last, self._before = now, so_far

    def eval(self, metric: str, value: float) -> None:
        """A value of a metric after the steps so far; the time that it took is no step's."""
        self._write(event="eval", step=self._steps, metric=metric, value=value)
        self._last = time.monotonic()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            so_far = self._so_far()
            self._write(event="end", steps=self._steps, seconds=time.monotonic() - self._begin,
                        raw_bytes=so_far["raw_bytes"], wire_bytes=so_far["wire_bytes"], status="ok")
        if self._file:
            self._file.close()

    def _so_far(self) -> dict[str, float]:
        if self._handle is None:
            return dict.fromkeys(self._before, 0.0)
        stats = self._handle._averager.stats()
        return {key: float(stats[key]) for key in self._before}

    def _write(self, **record: Any) -> None:
        if self._file:
            self._file.write(json.dumps(record) + "\n")


def metrics(path: str, handle: Handle | None = None, **about: Any) -> Metrics:
    """Writes the records of this run to ``path``; nothing when it is empty. ``handle``: what attach() returned, for the
    bytes; without one they are 0. ``about`` goes into the start record, e.g. spec and seed."""
    return Metrics(path, handle, **about)
