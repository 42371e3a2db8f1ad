"""Runs a function or a script on several ranks: forked processes, placed as torchrun would place them."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import multiprocessing.connection
import os
import pickle
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # DistributedDataParallel does, in three seconds: once here, not in every rank
import torch.distributed as dist

torch.set_num_threads(1)  # before any fork: a pool of threads does not survive one
_fork = multiprocessing.get_context("fork")


class RankFailed(AssertionError):
    pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _child(body: Callable[..., Any], arguments: tuple, pipe: Any) -> None:
    try:
        pipe.send_bytes(pickle.dumps(("ok", body(*arguments))))
    except BaseException:  # also what a test raises on purpose and does not catch
        pipe.send_bytes(pickle.dumps(("failed", traceback.format_exc())))
    pipe.close()
    os._exit(0)


def _on_ranks(ranks: int, body: Callable[..., Any], *arguments: Any, timeout: float,
              may_die: tuple[int, ...] = ()) -> list[Any]:
    """What body(rank, *arguments) returned, by rank; None for a rank that died and may."""
    pipes, processes = [], []
    for rank in range(ranks):
        ours, theirs = _fork.Pipe(duplex=False)
        process = _fork.Process(target=_child, args=(body, (rank, *arguments), theirs))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    results: list[Any] = [None] * ranks
    waiting = dict(zip(pipes, range(ranks)))
    end = time.monotonic() + timeout
    try:
        while waiting:
            ready = multiprocessing.connection.wait(list(waiting), max(end - time.monotonic(), 0))
            if not ready:
                raise RankFailed(f"ranks {sorted(waiting.values())} did not end within {timeout} s")
            for pipe in ready:
                rank = waiting.pop(pipe)
                try:
                    status, results[rank] = pickle.loads(pipe.recv_bytes())
                except EOFError:
                    processes[rank].join(5)
                    status = "ok" if rank in may_die else f"died, exit code {processes[rank].exitcode}"
                if status != "ok":
                    raise RankFailed(f"rank {rank} {status}:\n{results[rank]}")
    finally:
        for process in processes:
            process.join(5)
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                process.join()
    return results


def _in_group(rank: int, ranks: int, folder: str, body: Callable[..., Any], arguments: tuple) -> Any:
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", ranks), rank=rank, world_size=ranks)
    torch.manual_seed(1 + rank)
    result = body(rank, *arguments)
    dist.destroy_process_group()
    return result


def _script(rank: int, ranks: int, port: int, script: str, arguments: tuple[str, ...]) -> str:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(script, run_name="__main__")
    return out.getvalue()


@pytest.fixture
def run_ranks() -> Callable[..., list[Any]]:
    """run_ranks(ranks, body, *arguments): body(rank, *arguments) in a process group; what each returned, by rank."""

    def run(ranks: int, body: Callable[..., Any], *arguments: Any, timeout: float = 120,
            may_die: tuple[int, ...] = ()) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            return _on_ranks(ranks, _in_group, ranks, folder, body, arguments, timeout=timeout, may_die=may_die)

    return run


@pytest.fixture
def run_script() -> Callable[..., list[str]]:
    """run_script(ranks, script, *arguments): what each rank of it printed. Where torchrun takes seconds to start, this
    takes none."""

    def run(ranks: int, script: Path, *arguments: str, timeout: float = 120) -> list[str]:
        return _on_ranks(ranks, _script, ranks, free_port(), str(script), arguments, timeout=timeout)

    return run
