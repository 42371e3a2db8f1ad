"""Handles in ``torch.distributed.checkpoint``: they are Stateful, and loading takes the planner from here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata

__all__ = ["LoadPlanner"]

_RANK_KEY = re.compile(r"rank\d+_of_\d+")


class LoadPlanner(DefaultLoadPlanner):
    """Lets ``torch.distributed.checkpoint.load`` restore a handle, on any number of ranks.

    That function asks the checkpoint for the keys and sizes that the handle would save now. What was saved by another
    number of ranks has other keys, and behind the first step a state is larger than before it; so this planner asks for
    what is there: the part of this rank where there is one, else the parts of all ranks.
    """

    def set_up_planner(self, state_dict: dict[str, Any], metadata: Metadata | None = None,
                       is_coordinator: bool = False) -> None:
        if metadata is not None:
            _ask_for_what_was_saved(state_dict, metadata.state_dict_metadata, "")
        super().set_up_planner(state_dict, metadata, is_coordinator)


def _ask_for_what_was_saved(asked: dict[str, Any], saved: Mapping[str, Any], prefix: str) -> None:
    own = [key for key in asked if _RANK_KEY.fullmatch(key)]
    if not own:
        for key, value in asked.items():
            if isinstance(value, dict):
                _ask_for_what_was_saved(value, saved, f"{prefix}{key}.")
        return
    found = [name[len(prefix):] for name in saved
             if name.startswith(prefix) and _RANK_KEY.fullmatch(name[len(prefix):])]
    if not found:
        return  # the error about missing keys is torch's
    # In place: load() hands this very dict to Handle.load_state_dict().
    asked.clear()
    for key in own if own[0] in found else found:
        asked[key] = torch.empty(saved[prefix + key].size, dtype=torch.uint8)
