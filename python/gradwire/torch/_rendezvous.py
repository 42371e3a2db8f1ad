"""How the ranks of a process group come to a communicator of their own: through the store that the group has."""

from __future__ import annotations

import os
import platform
import socket
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from gradwire import _core
from gradwire._error import Error
from gradwire.torch._collectives import Collectives

TRANSPORTS = ("auto", "gloo", "torch")
_made: dict[str, int] = {}  # communicators so far by group; equal on its ranks, as attach() is collective


def _machine() -> str:
    """Equal for ranks that share a loopback interface: containers on one machine need not."""
    boot, network = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/net")
    return (f"{platform.node()} {boot.read_text().strip() if boot.exists() else ''} "
            f"{network.stat().st_ino if network.exists() else ''}")


def _free_port(host: str) -> int:
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _address(group: dist.ProcessGroup, machines: set[str]) -> str:
    if len(machines) == 1:
        host = "127.0.0.1"
    else:
        # MASTER_ADDR is how the others reach global rank 0 already.
        first = dist.get_global_rank(group, 0) == 0
        host = os.environ.get("MASTER_ADDR", "") if first else ""
        host = host or socket.gethostbyname(socket.gethostname())
    return f"tcp://{f'[{host}]' if ':' in host else host}:{_free_port(host)}"


def _decide(group: dist.ProcessGroup, of_ranks: list[list[str]]) -> str:
    """Rank 0, for all: where to meet for Gloo, "torch", or what is wrong."""
    asked = of_ranks[0][0]
    for rank, (transport, _, _) in enumerate(of_ranks):
        if transport != asked:
            return f"!rank {rank} attached with transport='{transport}' and rank 0 with '{asked}': use the same"
    without = [rank for rank, (_, gloo, _) in enumerate(of_ranks) if not gloo]
    if asked == "gloo" and without:
        return f"!transport='gloo', and the gradwire of rank {without[0]} was built without libgloo: use 'auto'"
    uses_gloo = "gloo" in dist.get_backend_config(group)
    if asked == "torch" or asked == "auto" and (without or not uses_gloo):
        return "torch"
    return _address(group, {machine for _, _, machine in of_ranks})


def _agree(group: dist.ProcessGroup, number: int, rank: int, size: int, transport: str, timeout: float) -> str:
    store = c10d._get_process_group_store(group)
    prefix = f"gradwire/{number}"

    def read(key: str, of: int, patience: float = timeout) -> str:
        try:
            store.wait([f"{prefix}/{key}"], timedelta(seconds=patience))
        except RuntimeError as why:
            raise Error(f"attach(): rank {of} did not come within {timeout} s", "timeout") from why
        return bytes(store.get(f"{prefix}/{key}")).decode()

    store.set(f"{prefix}/{rank}", f"{transport}\n{'gloo' if _core.has_gloo else ''}\n{_machine()}")
    if rank == 0:
        try:
            decided = _decide(group, [read(str(other), other).split("\n") for other in range(size)])
        except (Error, OSError) as why:
            store.set(f"{prefix}/decision", f"!{why}")
            raise
        store.set(f"{prefix}/decision", decided)
    decision = read("decision", 0, 2 * timeout)  # rank 0 may wait for others first, and then says for whom
    if decision.startswith("!"):
        raise Error(decision[1:], "mismatch")
    return decision


def meet(group: dist.ProcessGroup, timeout: float, transport: str) -> _core.Communicator:
    """A communicator of the group's ranks that nobody else uses. Collective."""
    if transport not in TRANSPORTS:
        raise Error(f"transport='{transport}' is not known: use one of {', '.join(TRANSPORTS)}")
    if not 0.001 <= timeout <= 1e6:
        raise Error(f"timeout={timeout}: give seconds, from 0.001 to 1,000,000")
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    number = _made[group.group_name] = _made.get(group.group_name, 0) + 1
    if dist.get_backend(group) == "mpi":  # has no store, nor Gloo
        if transport == "gloo" or size != dist.get_world_size():
            raise Error("a group of torch's MPI is served by transport='torch', and only the group of all ranks",
                        "unsupported")
        decision = "torch"
    else:
        decision = _agree(group, number, rank, size, transport, timeout)
    if decision == "torch":
        return _core.make_torch(Collectives(group, number, timeout), rank, size, timeout)
    return _core.make_gloo(rank, size, decision, os.environ.get("GRADWIRE_INTERFACE", ""), timeout)
