"""Runs a function on several ranks: forked processes with a process group of their own, as torchrun would start them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo  # DistributedDataParallel does, in three seconds: once here, not in every rank
import torch.distributed as dist

torch.set_num_threads(1)  # before any fork: a pool of threads does not survive one
_fork = multiprocessing.get_context("fork")


class RankFailed(AssertionError):
    pass


def _child(rank: int, ranks: int, folder: str, body: Callable[..., Any], arguments: tuple, pipe: Any) -> None:
    try:
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", ranks), rank=rank, world_size=ranks)
        torch.manual_seed(1 + rank)
        pipe.send_bytes(pickle.dumps(("ok", body(rank, *arguments))))
        dist.destroy_process_group()
    except BaseException:  # also what a test raises on purpose and does not catch
        pipe.send_bytes(pickle.dumps(("failed", traceback.format_exc())))
    pipe.close()
    os._exit(0)


@pytest.fixture
def run_ranks() -> Callable[..., list[Any]]:
    """run_ranks(ranks, body, *arguments) -> what body(rank, *arguments) returned, by rank; None for a rank that died."""

    def run(ranks: int, body: Callable[..., Any], *arguments: Any, timeout: float = 120) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            pipes, processes = [], []
            for rank in range(ranks):
                ours, theirs = _fork.Pipe(duplex=False)
                process = _fork.Process(target=_child, args=(rank, ranks, folder, body, arguments, theirs))
                process.start()
                theirs.close()
                pipes.append(ours)
                processes.append(process)
            results: list[Any] = []
            try:
                for rank, pipe in enumerate(pipes):
                    if not pipe.poll(timeout):
                        raise RankFailed(f"rank {rank} did not end within {timeout} s")
                    try:
                        status, value = pickle.loads(pipe.recv_bytes())
                    except EOFError:
                        status, value = "ok", None
                    if status != "ok":
                        raise RankFailed(f"rank {rank}:\n{value}")
                    results.append(value)
            finally:
                for process in processes:
                    process.join(5)
                    if process.is_alive():
                        os.kill(process.pid, signal.SIGKILL)
                        process.join()
            return results

    return run
