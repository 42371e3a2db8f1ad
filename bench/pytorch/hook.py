"""Microseconds that a bucket costs on Python's side: what backward's thread spends in the hook, and what a thread of
gradwire's spends with the interpreter's lock when the means are there. One rank, so that nothing else takes time.

    .venv/bin/python bench/pytorch/hook.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch

BUCKETS, STEPS, WARM_UP = 16, 200, 20


def timed(body: Callable[..., Any], into: list[float]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        begin = time.perf_counter()
        result = body(*arguments)
        into.append((time.perf_counter() - begin) * 1e6)
        return result

    return run


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1)
        layers = [nn.Linear(32, 32, bias=False) for _ in range(BUCKETS)]
        model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.001)
        handle = gradwire.torch.attach(model, "onebit+ef")
        in_hook: list[float] = []
        in_callback: list[float] = []
        averager = handle._averager
        handle._hook = timed(handle._hook, in_hook)  # type: ignore[method-assign]

        class Averager:
            def start(self, address: int, layout: Any, last: bool, done: Callable[..., None]) -> None:
                averager.start(address, layout, last, timed(done, in_callback))

        handle._averager = Averager()  # type: ignore[assignment]
        inputs = torch.randn(4, 32)
        for step in range(WARM_UP + STEPS):
            if step == WARM_UP:
                in_hook.clear()
                in_callback.clear()
            model(inputs).sum().backward()
        dist.destroy_process_group()
    for name, values in (("hook", in_hook), ("completion", in_callback)):
        values.sort()
        print(f"{name:10}  p50 {statistics.median(values):6.1f} µs   p90 {values[len(values) * 9 // 10]:6.1f} µs   "
              f"of {len(values)} buckets")


if __name__ == "__main__":
    main()
