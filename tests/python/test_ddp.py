"""What users of DistributedDataParallel do, each on real DDP over several processes."""

import contextlib
import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from models import agree, batch, flat, mlp, small_buckets, train


@pytest.fixture(params=["gloo", "torch"])
def transport(request, monkeypatch):
    """The ranks, which are forked, attach over it."""
    monkeypatch.setattr(gradwire.torch, "attach", functools.partial(gradwire.torch.attach, transport=request.param))


over_both = pytest.mark.usefixtures("transport")
METHODS = ["none", "bf16", "onebit+ef", "quant(bits=4)+ef", "topk(ratio=0.05)+ef"]


def plain_and_attached(rank, options, set_to_none):
    """Two models, trained alike; with two ranks a sum has one order, so `none` must give DDP's own bits."""
    plain = small_buckets(mlp(), **options)
    train(plain, rank, 4, set_to_none=set_to_none)
    model = small_buckets(mlp(), **options)
    handle = gradwire.torch.attach(model, "none")
    train(model, rank, 4, set_to_none=set_to_none)
    assert torch.equal(flat(model), flat(plain))
    agree(model)
    return handle.stats()["steps"]


@over_both
@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}, {"static_graph": True},
                                     {"find_unused_parameters": True}], ids=str)
def test_none_is_plain_ddp_to_the_bit(run_ranks, options, set_to_none):
    assert run_ranks(2, plain_and_attached, options, set_to_none) == [4, 4]


def trains(rank, method):
    model = small_buckets(mlp())
    handle = gradwire.torch.attach(model, method)
    train(model, rank, 8)
    agree(model)
    stats = handle.stats()
    assert stats["buckets"] > 1  # rebuilt behind the first step
    return stats["compression"]


@over_both
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("method", METHODS)
def test_all_ranks_end_with_the_same_bits(run_ranks, method, ranks):
    run_ranks(ranks, trains, method)


def accumulates(rank):
    def run(model, accumulate):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(3):
            optimizer.zero_grad()
            for part in range(2):
                x, y = batch(rank, 10 * step + part)
                last = part == 1
                with contextlib.nullcontext() if last or not accumulate else model.no_sync():
                    nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        return agree(model)

    expected = run(small_buckets(mlp()), True)
    model = small_buckets(mlp())
    handle = gradwire.torch.attach(model, "none")
    assert torch.equal(run(model, True), expected)
    assert handle.stats()["steps"] == 3  # once a synchronised backward, not once a micro-batch

    # Accumulated or not, feedback takes what it is given once.
    model = small_buckets(mlp())
    handle = gradwire.torch.attach(model, "onebit+ef")
    run(model, True)
    return handle.stats()["steps"]


@over_both
def test_no_sync_accumulates_and_averages_once(run_ranks):
    assert run_ranks(2, accumulates) == [3, 3]


class Branches(nn.Module):
    """Rank 0 uses one branch, rank 1 the other; one parameter is used by nobody."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right = nn.Linear(32, 10), nn.Linear(32, 10)
        self.nobody = nn.Parameter(torch.ones(2000, 2))

    def forward(self, x, left):
        return self.left(x) if left else self.right(x)


def uses_branches(rank, method):
    model = small_buckets(Branches(), find_unused_parameters=True)
    gradwire.torch.attach(model, method, min_numel=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x, rank == 0), y).backward()
        optimizer.step()
    agree(model)
    assert torch.equal(model.module.nobody.detach(), torch.ones(2000, 2))


@over_both
@pytest.mark.parametrize("method", ["none", "onebit+ef"])
def test_parameters_without_use_on_one_rank_or_all(run_ranks, method):
    run_ranks(2, uses_branches, method)


def accumulates_over_branches(rank, method):
    model = small_buckets(Branches(), find_unused_parameters=True)
    gradwire.torch.attach(model, method, min_numel=8)
    for step in range(5):
        model.zero_grad()
        for part in range(2):  # the first part's branch has no gradient in the second, which is the one that reduces
            x, y = batch(rank, 10 * step + part)
            with contextlib.nullcontext() if part == 1 else model.no_sync():
                nn.functional.cross_entropy(model(x, part == 0), y).backward()
        gradients = [each.grad for each in (model.module.left.weight, model.module.right.weight)]
        assert all(gradient.abs().sum() > 0 for gradient in gradients)
        for gradient in gradients:
            others = [torch.empty_like(gradient) for _ in range(2)]
            dist.all_gather(others, gradient)
            assert torch.equal(*others)


@over_both
@pytest.mark.parametrize("method", ["none", "onebit+ef"])
def test_gradients_of_an_earlier_micro_batch_through_another_branch_are_averaged(run_ranks, method):
    run_ranks(2, accumulates_over_branches, method)


class Odd(nn.Module):
    """Shared and frozen parameters, channels_last, scalars."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(8, 16, 3, padding=1).to(memory_format=torch.channels_last)
        self.shared = nn.Linear(16, 16)
        self.again = self.shared
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.conv(x.to(memory_format=torch.channels_last)).mean((2, 3))
        return self.head(self.norm(self.again(self.shared(self.frozen(x)))) * self.scale)


def trains_odd(rank, method):
    plain, model = DistributedDataParallel(Odd()), DistributedDataParallel(Odd())
    gradwire.torch.attach(model, method, min_numel=64)
    for one in (plain, model):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.05)
        for step in range(4):
            x, y = batch(rank, step, (16, 8, 6, 6))
            optimizer.zero_grad()
            nn.functional.cross_entropy(one(x), y).backward()
            weight = torch.tensor([float(step)])
            dist.all_reduce(weight)  # the user's own collective, beside ours
            assert weight.item() == 2 * step
            optimizer.step()
    if method == "none":
        assert torch.equal(flat(model), flat(plain))
    agree(model)


@over_both
@pytest.mark.parametrize("method", METHODS)
def test_shared_frozen_channels_last_and_buffers(run_ranks, method):
    run_ranks(2, trains_odd, method)


def trains_mixed(rank, method):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 96).bfloat16(), nn.ReLU(),
                           nn.Linear(96, 10).half())

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = module

        def forward(self, x):
            for part in self.parts:
                weight = getattr(part, "weight", None)
                x = part(x if weight is None else x.to(weight.dtype))
            return x

    model = small_buckets(Mixed())
    gradwire.torch.attach(model, method, min_numel=64)
    train(model, rank, 4, lr=0.01)
    agree(model)


@over_both
@pytest.mark.parametrize("method", METHODS)
def test_types_in_one_model(run_ranks, method):
    run_ranks(2, trains_mixed, method)


def overflows(rank, method):
    model = small_buckets(mlp())
    handle = gradwire.torch.attach(model, method)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(number, spoil):
        x, y = batch(rank, number)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss = scaler.scale(loss)
        if spoil:
            loss = loss * float("inf")
        loss.backward()
        scaler.step(optimizer)
        scaler.update()

    for number in range(3):
        step(number, False)
    before, residuals = flat(model), handle.stats()["residual_norm"]
    step(3, rank == 1)
    assert torch.equal(flat(model), before)  # skipped, on the rank without an overflow too
    assert scaler.get_scale() == 512.0
    assert handle.stats()["residual_norm"] == residuals
    step(4, False)
    assert not torch.equal(flat(model), before)
    agree(model)


@over_both
@pytest.mark.parametrize("method", METHODS)
def test_an_overflow_on_one_rank_skips_the_step_on_all(run_ranks, method):
    run_ranks(2, overflows, method)


def joins(rank, method):
    model = small_buckets(mlp())
    gradwire.torch.attach(model, method)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with Join([model]):
        for step in range(3 + 2 * rank):  # rank 1 has more
            x, y = batch(rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return flat(model)


@over_both
@pytest.mark.parametrize("method", ["none", "onebit+ef"])
def test_join_with_uneven_inputs(run_ranks, method):
    first, second = run_ranks(2, joins, method)
    assert torch.equal(first, second)


def compiles(rank, method):
    expected = DistributedDataParallel(mlp())
    gradwire.torch.attach(expected, method)
    train(expected, rank, 3)
    model = torch.compile(DistributedDataParallel(mlp()), backend="eager")
    gradwire.torch.attach(model, method)
    train(model, rank, 3)
    assert torch.equal(agree(model), flat(expected))


@pytest.mark.parametrize("method", ["none", "onebit+ef"])
def test_a_compiled_model(run_ranks, method):
    run_ranks(2, compiles, method)


def clips_and_has_two_models(rank):
    one, two = small_buckets(mlp()), small_buckets(mlp())
    gradwire.torch.attach(one, "onebit+ef")
    gradwire.torch.attach(two, "quant(bits=4)+ef")
    for model in (one, two):
        train(model, rank, 4, between=lambda m=model: nn.utils.clip_grad_norm_(m.parameters(), 0.5))
    agree(one)
    agree(two)
    assert not torch.equal(flat(one), flat(two))


@over_both
def test_clipping_and_a_second_model(run_ranks):
    run_ranks(2, clips_and_has_two_models)


def attaches_late(rank):
    model = small_buckets(mlp())
    train(model, rank, 2)
    handle = gradwire.torch.attach(model, "onebit+ef")
    train(model, rank, 3, first=2)
    agree(model)
    return handle.stats()["steps"]


@over_both
def test_attached_after_training_started(run_ranks):
    assert run_ranks(2, attaches_late) == [3, 3]


def in_a_subgroup(rank):
    group = dist.new_group([0, 2])
    some = None
    if rank != 1:
        model = DistributedDataParallel(mlp(), process_group=group)
        gradwire.torch.attach(model, "onebit+ef")
        train(model, rank, 3)
        some = flat(model)
    # Then all of them, who have not attached equally often.
    model = DistributedDataParallel(mlp())
    gradwire.torch.attach(model, "onebit+ef")
    train(model, rank, 2)
    agree(model)
    return some


@over_both
def test_a_process_group_of_some_ranks(run_ranks):
    first, _, third = run_ranks(3, in_a_subgroup)
    assert torch.equal(first, third)


def copies(rank):
    model = small_buckets(mlp())
    gradwire.torch.attach(model, "onebit+ef")
    average = torch.optim.swa_utils.AveragedModel(model)
    train(model, rank, 2)
    average.update_parameters(model)
    return torch.equal(flat(average), flat(model))


def test_a_model_can_be_copied_for_its_moving_average(run_ranks):
    assert run_ranks(2, copies) == [True, True]


def follows_options(rank, trace):
    model = small_buckets(mlp())
    handle = gradwire.torch.attach(model, "onebit+ef", rules=["name~^0[.]weight$=>none"], warmup_steps=2, trace=True)
    train(model, rank, 2)
    stats = handle.stats()
    assert set(stats["residual_norm"].values()) == {0.0}  # dense so far
    train(model, rank, 2, first=2)
    assert "0.weight" not in handle.stats()["residual_norm"]
    assert handle.stats()["residual_norm"]["2.weight"] > 0
    handle.write_trace(f"{trace}/{rank}.json")


@over_both
def test_rules_warm_up_and_trace(run_ranks, tmp_path):
    run_ranks(2, follows_options, str(tmp_path))
    assert "exchange" in (tmp_path / "1.json").read_text()


def counts_collectives(rank):
    model = DistributedDataParallel(nn.Sequential(*[nn.Linear(32, 32, bias=False) for _ in range(6)]))
    handle = gradwire.torch.attach(model, "topk(ratio=0.05)+ef+via(one_shot)")
    for step in range(3):
        model(batch(rank, step)[0]).sum().backward()
    stats = handle.stats()
    return stats["buckets"], stats["collectives"]


def test_a_bucket_of_many_parameters_is_one_exchange(run_ranks):
    assert run_ranks(2, counts_collectives) == [(1, 3), (1, 3)]
