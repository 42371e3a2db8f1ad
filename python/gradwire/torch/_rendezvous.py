"""Where the ranks of a process group meet for a communicator of their own: through the store that the group has."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from gradwire import _core

_made = 0  # communicators so far; equal on all ranks, as attach() is collective


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{platform.node()} {boot.read_text().strip() if boot.exists() else ''}"


def _free_port(host: str) -> int:
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _address(group: dist.ProcessGroup, rank: int, size: int, key: str) -> str:
    store = c10d._get_process_group_store(group)
    store.set(f"{key}/machine/{rank}", _machine())
    if rank == 0:
        machines = {store.get(f"{key}/machine/{other}") for other in range(size)}
        if len(machines) == 1:
            host = "127.0.0.1"
        else:
            # MASTER_ADDR is how the others reach global rank 0 already.
            first = dist.get_global_rank(group, 0) == 0
            host = os.environ.get("MASTER_ADDR", "") if first else ""
            host = host or socket.gethostbyname(socket.gethostname())
        store.set(f"{key}/address", f"tcp://{f'[{host}]' if ':' in host else host}:{_free_port(host)}")
    return bytes(store.get(f"{key}/address")).decode()


def meet(group: dist.ProcessGroup, timeout: float) -> _core.Communicator:
    """A communicator of the group's ranks that nobody else uses. Collective."""
    global _made
    _made += 1
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    address = _address(group, rank, size, f"gradwire/{_made}") if size > 1 else ""
    return _core.make_gloo(rank, size, address, os.environ.get("GRADWIRE_INTERFACE", ""), timeout)
