"""What the examples share: the options that make a script an arm of `gradwire ab`, and the line at the end."""

from __future__ import annotations

import argparse

import torch.distributed as dist

import gradwire.torch


def parser(description: str | None) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--spec", default="onebit+ef", help="how gradients travel; empty: plain DDP")
    result.add_argument("--seed", type=int, default=1)
    result.add_argument("--metrics", default="", help="a file for the records of the run")
    return result


def report(spec: str, metric: str, value: float, handle: gradwire.torch.Handle | None) -> None:
    if dist.get_rank() != 0:
        return
    compression = handle.stats()["compression"] if handle else None
    print(f"{spec or 'plain DDP'}: {metric} {value:.4f}" +
          (f", {compression:.1f} times fewer bytes" if compression else ""))
