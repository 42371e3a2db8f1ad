"""gradwire's messages over a process group of torch's, of any backend: what `_core.make_torch` calls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from gradwire._error import Error

Message = tuple[int, memoryview]  # a rank of the group, and what goes to it or comes from it


def _own_group(group: dist.ProcessGroup, number: int, timeout: float) -> dist.ProcessGroup:
    """Of the same ranks and backend, with no other user: the `number`-th made for that group."""
    ranks = dist.get_process_group_ranks(group)

    def make(local: bool) -> dist.ProcessGroup:
        made = dist.new_group(ranks, timedelta(seconds=timeout), dist.get_backend_config(group),
                              use_local_synchronization=local)
        assert isinstance(made, dist.ProcessGroup)  # something else on ranks outside
        return made

    # Within the whole world not every backend can do without the other ranks.
    if len(ranks) == dist.get_world_size():
        return make(local=False)
    # Ranks outside a group do not come here. torch names groups after a count of them, which has to stay the same on all
    # ranks: this group is none of those.
    counted = c10d._world.group_count
    c10d._world.group_count = 1_000_000 + number
    try:
        return make(local=True)
    finally:
        c10d._world.group_count = counted


class Collectives:
    def __init__(self, group: dist.ProcessGroup, number: int, timeout: float) -> None:
        self._group = _own_group(group, number, timeout)
        self._ranks = dist.get_process_group_ranks(self._group)
        self._timeout = timeout
        self._sent = [0] * len(self._ranks)
        self._received = [0] * len(self._ranks)

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """All messages at once; returns when they are through. torch waits without the interpreter's lock."""
        begin = time.monotonic()
        peer = -1
        try:
            under_way = []
            for peer, memory in receives:
                self._received[peer] += 1
                work = dist.irecv(torch.frombuffer(memory, dtype=torch.uint8), self._ranks[peer], self._group,
                                  _tag(self._received[peer], len(memory)))
                under_way.append((peer, work))
            for peer, memory in sends:
                self._sent[peer] += 1
                work = dist.isend(torch.frombuffer(memory, dtype=torch.uint8), self._ranks[peer], self._group,
                                  _tag(self._sent[peer], len(memory)))
                under_way.append((peer, work))
            for peer, work in under_way:
                assert work is not None  # it is on ranks outside the group
                left = self._timeout - (time.monotonic() - begin)
                work.wait(timedelta(seconds=max(left, 0.001)))
        except Exception as why:
            late = time.monotonic() - begin >= self._timeout - 0.01  # torch waits whole milliseconds, rounded down
            raise Error(f"rank {peer} {'did not answer in time' if late else 'could not be reached'}: {why}",
                        "timeout" if late else "communicator") from why


def _tag(number: int, size: int) -> int:
    # So that messages of ranks that disagree on a size do not meet; 32767 is the most that MPI promises.
    return (31 * number + size) & 0x7FFF
