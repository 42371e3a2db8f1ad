from __future__ import annotations

import atexit
import contextlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from gradwire import _core
from gradwire._error import Error
from gradwire.torch._rendezvous import meet

_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_OLDEST = (2, 4)


def _check_torch() -> None:
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if release < _OLDEST:
        raise Error(f"torch {torch.__version__} is too old: gradwire.torch needs {_OLDEST[0]}.{_OLDEST[1]} or newer",
                    "unsupported")


def _ddp_of(model: Any) -> DistributedDataParallel:
    inner = getattr(model, "_orig_mod", model)  # torch.compile wraps
    if not isinstance(inner, DistributedDataParallel):
        raise Error(f"attach() takes a DistributedDataParallel, not {type(model).__name__}: wrap the model first, "
                    "model = DistributedDataParallel(model)")
    mode = torch._dynamo.config.optimize_ddp
    if isinstance(mode, str) and mode.startswith("python_reducer"):
        raise Error(f"torch._dynamo.config.optimize_ddp is '{mode}', which bypasses communication hooks: set it to True",
                    "unsupported")
    if torch._dynamo.config.compiled_autograd:
        raise Error("compiled autograd bypasses the buckets of communication hooks: set "
                    "torch._dynamo.config.compiled_autograd to False", "unsupported")
    if inner in _handles:
        raise Error("gradwire is attached to this model already: attach once, before training")
    return inner


def _averaged_parameters(ddp: DistributedDataParallel) -> dict[str, torch.nn.Parameter]:
    ignored = set(ddp.parameters_to_ignore)
    result = {name: parameter for name, parameter in ddp.module.named_parameters()
              if parameter.requires_grad and name not in ignored}
    for name, module in ddp.module.named_modules():
        if getattr(module, "sparse", False) and isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            raise Error(f"'{name}' has sparse gradients, which DistributedDataParallel does not give to hooks: make it "
                        "with sparse=False", "unsupported")
    for name, parameter in result.items():
        if parameter.device.type != "cpu":
            raise Error(f"parameter '{name}' is on {parameter.device}, and this build of gradwire has no CUDA: keep the "
                        "model on the CPU", "unsupported")
        if parameter.dtype not in _DTYPES:
            raise Error(f"parameter '{name}' is {parameter.dtype}: gradwire averages float32, float16 and bfloat16",
                        "unsupported")
    return result


class Handle:
    """What attach() returns. Keep it, or not: the hook lives as long as the model."""

    def __init__(self, ddp: DistributedDataParallel, spec: str, rules: Sequence[str], min_numel: int, seed: int,
                 group: dist.ProcessGroup, timeout: float, timeline: bool, transport: str) -> None:
        parameters = _averaged_parameters(ddp)
        self._names = list(parameters)
        self._index = {id(parameter): i for i, parameter in enumerate(parameters.values())}
        self._layouts: dict[int, tuple[tuple[int, ...], _core.Layout]] = {}
        self._pending: list[torch.futures.Future[torch.Tensor]] = []
        self._latest: torch.futures.Future[torch.Tensor] | None = None
        self._failure: Error | None = None
        self._comm = meet(group, timeout, transport)
        self._averager = _core.Averager(
            self._comm, self._names, [list(parameter.shape) for parameter in parameters.values()],
            [_DTYPES[parameter.dtype] for parameter in parameters.values()], spec, rules, min_numel, seed, timeline)

    def _layout(self, bucket: GradBucket, buffer: torch.Tensor) -> _core.Layout:
        parameters = bucket.parameters()
        key = tuple(map(id, parameters))
        known = self._layouts.get(bucket.index())
        if known is not None and known[0] == key:
            return known[1]
        offset, slots = 0, []
        for parameter in parameters:
            slots.append((self._index[id(parameter)], offset))
            offset += parameter.numel()
        layout = _core.make_layout(_DTYPES[buffer.dtype], slots)
        self._layouts[bucket.index()] = (key, layout)
        return layout

    def _hook(self, state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if self._failure is not None:
            raise self._failure
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        buffer = bucket.buffer()

        def done(failure: Error | None) -> None:
            if failure is None:
                future.set_result(buffer)
            else:
                self._failure = failure
                future.set_exception(failure)  # type: ignore[arg-type]  # torch takes it for a result

        last = bucket.is_last()
        self._averager.start(buffer.data_ptr(), self._layout(bucket, buffer), last, done)
        self._pending.append(future)
        self._latest = future
        if last:
            self._raise_failures_from_backward()
        return future

    def _raise_failures_from_backward(self) -> None:
        # DDP makes a RuntimeError of whatever a future holds. A callback that autograd runs before DDP looks at the
        # futures raises the error itself.
        pending, self._pending = self._pending, []

        def wait() -> None:
            for future in pending:
                future.wait()

        # Outside backward, where a rank that has joined stands in for its gradients, there is nobody to raise it to: the
        # next call does.
        with contextlib.suppress(RuntimeError):
            torch.autograd.Variable._execution_engine.queue_callback(wait)

    def _close(self) -> None:
        # Threads must not be waiting for the interpreter's lock when it goes away.
        if self._latest is not None and not self._latest.done():
            self._comm.abort()
        del self._averager

    def stats(self) -> dict[str, Any]:
        """The transport, "gloo" or "torch"; steps, raw_bytes (as f32 by the dense algorithm), wire_bytes (what this rank
        sent), compression, collectives, exposed_seconds (what was left behind backward), buckets, and residual_norm by
        parameter (of what error feedback holds back, on this rank; not during backward)."""
        result = {"transport": self._comm.transport} | self._averager.stats()
        result["compression"] = result["raw_bytes"] / result["wire_bytes"] if result["wire_bytes"] else None
        residuals = {name: self._averager.residual(i) for i, name in enumerate(self._names)}
        result["residual_norm"] = {name: float(torch.from_numpy(values).norm())
                                   for name, values in residuals.items() if values.size}
        return result

    def state_dict(self) -> dict[str, Any]:
        """This rank's part of what a later step depends on: residuals, step, seed. Each rank saves its own. Not during
        backward."""
        state = torch.frombuffer(bytearray(self._averager.save_state()), dtype=torch.uint8)
        return {f"rank{self._comm.rank}_of_{self._comm.size}": state}

    def load_state_dict(self, states: Mapping[str, torch.Tensor]) -> None:
        """Takes what state_dict() gave on this rank; or, saved by another number of ranks, all of their dicts merged,
        on every rank: the mean over ranks of residuals, which is what is still owed, keeps its value. All ranks load.
        torch.distributed.checkpoint loads through gradwire.torch.checkpoint.LoadPlanner."""
        own = f"rank{self._comm.rank}_of_{self._comm.size}"
        if own in states:
            chosen = [states[own] if f"rank{r}_of_{self._comm.size}" == own else b"" for r in range(self._comm.size)]
        else:
            worlds = {key.rpartition("_of_")[2] for key in states}
            if len(worlds) != 1:
                raise Error(f"load_state_dict() got states of worlds {sorted(worlds)}: give those of one save")
            world = int(worlds.pop())
            missing = [r for r in range(world) if f"rank{r}_of_{world}" not in states]
            if missing:
                raise Error(f"load_state_dict() lacks the states of ranks {missing} of {world}: saved by another number "
                            "of ranks, all of them are needed on every rank", "mismatch")
            chosen = [states[f"rank{r}_of_{world}"] for r in range(world)]
        self._averager.load_state([each if isinstance(each, bytes) else bytes(each.numpy()) for each in chosen])

    def write_trace(self, file: str) -> None:
        """Chrome/Perfetto JSON of this rank's buckets; attach(…, trace=True) records it."""
        self._averager.write_timeline(str(file))


def attach(model: torch.nn.Module, spec: str, *, rules: Sequence[str] = (), min_numel: int = 1024,
           warmup_steps: int = 0, process_group: dist.ProcessGroup | None = None, seed: int = 0,
           timeout: float = 300.0, trace: bool = False, transport: str = "auto") -> Handle:
    """Averages the gradients of a DistributedDataParallel by ``spec``, e.g. ``"onebit+ef"``, from the next backward on.

    Collective: every rank calls it with equal arguments, before training; ranks that differ all raise Error. ``rules``
    are ``"name~REGEX=>SPEC"`` and decide first; other parameters of one dimension or under ``min_numel`` elements go
    dense. The first ``warmup_steps`` steps are dense. ``process_group``: that of the model unless given. The ranks get
    a communicator of their own; no wait in it is longer than ``timeout`` seconds. ``transport``: ``"gloo"``, gradwire's
    own connections; ``"torch"``, a new group of torch's; ``"auto"``, the first where the model's group is Gloo's.
    """
    _check_torch()
    ddp = _ddp_of(model)
    if warmup_steps:
        spec = f"{spec}+warmup(steps={warmup_steps})"
    handle = Handle(ddp, _core.check_spec(spec), list(rules), min_numel, seed, process_group or ddp.process_group,
                    timeout, trace, transport)
    ddp.register_comm_hook(None, _with_signature(handle))
    _handles[ddp] = handle
    _open.append(handle)
    return handle


# Not attributes of the models, which users copy (torch.optim.swa_utils.AveragedModel).
_handles: weakref.WeakKeyDictionary[DistributedDataParallel, Handle] = weakref.WeakKeyDictionary()
# Until the end: the garbage collector runs in any thread, also in one of a handle's own, which cannot end itself.
_open: list[Handle] = []


@atexit.register
def _close_all() -> None:
    for handle in _open:
        handle._close()


def _with_signature(handle: Handle) -> Callable[[object, GradBucket], torch.futures.Future[torch.Tensor]]:
    # torch reads the hook's annotations, and wants its second parameter to be called bucket.
    def gradwire_hook(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        return handle._hook(state, bucket)

    gradwire_hook.__annotations__ = {"state": object, "bucket": GradBucket,
                                     "return": torch.futures.Future[torch.Tensor]}
    return gradwire_hook
