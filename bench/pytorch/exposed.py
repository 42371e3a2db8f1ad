"""One rank of one arm of exposed.sh: the milliseconds of a step that are not computation.

A step is forward and backward of a 25-million-parameter model in 16 tensors under DistributedDataParallel. Every other step
runs under no_sync(), which is the same computation without communication; what is left of the median step is exposed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, BATCH = 1768, 8, 16
WARM_UP = 3  # PowerSGD compresses from its third step on


def power_sgd(rank: int) -> Callable[[DistributedDataParallel], None]:
    def register(model: DistributedDataParallel) -> None:
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    return register


def gradwire(spec: str) -> Callable[[DistributedDataParallel], None]:
    def register(model: DistributedDataParallel) -> None:
        import gradwire.torch

        gradwire.torch.attach(model, spec)

    return register


ARMS: dict[str, Callable[[DistributedDataParallel], None]] = {
    "ddp": lambda model: None,
    "fp16": lambda model: model.register_comm_hook(None, default_hooks.fp16_compress_hook),
    "int8": lambda model: model.register_comm_hook(None, quantization_hooks.quantization_pertensor_hook),
    "powersgd-1": power_sgd(1),
    "powersgd-2": power_sgd(2),
    "powersgd-4": power_sgd(4),
    "none": gradwire("none"),
    "bf16": gradwire("bf16"),
    "onebit+ef": gradwire("onebit+ef"),
    "quant(bits=4)+ef": gradwire("quant(bits=4)+ef"),
}
# With several buckets these abort or hang on Gloo (torch 2.15).
SINGLE_BUCKET = {"int8", "powersgd-1", "powersgd-2", "powersgd-4"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arm", required=True, choices=ARMS)
    parser.add_argument("--rate", required=True, help="goes into the record")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", help="append the record to this file")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    extra = {"bucket_cap_mb": 1000} if options.arm in SINGLE_BUCKET else {}
    model = DistributedDataParallel(nn.Sequential(*layers), **extra)
    ARMS[options.arm](model)
    inputs = torch.randn(BATCH, WIDTH)

    def step() -> float:
        model.zero_grad(set_to_none=True)
        dist.barrier()
        begin = time.perf_counter()
        model(inputs).square().mean().backward()
        return (time.perf_counter() - begin) * 1000

    whole, alone = [], []
    for i in range(WARM_UP + options.steps):
        took = step()
        with model.no_sync():
            computed = step()
        if i >= WARM_UP:
            whole.append(took)
            alone.append(computed)
    if dist.get_rank() == 0:
        record = {"event": "exposed", "rate": options.rate, "arm": options.arm,
                  "step_ms": statistics.median(whole), "compute_ms": statistics.median(alone),
                  "exposed_ms": statistics.median(whole) - statistics.median(alone), "steps": options.steps,
                  "torch": torch.__version__}
        if options.json:
            with open(options.json, "a") as file:
                file.write(json.dumps(record) + "\n")
        print(f"{options.arm:18} step {record['step_ms']:7.1f} ms, of them {record['compute_ms']:6.1f} of computation, "
              f"{record['exposed_ms']:7.1f} exposed", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
