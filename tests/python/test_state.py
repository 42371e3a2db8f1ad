import io

import pytest
import torch

import gradwire.torch
from models import agree, flat, mlp, small_buckets, train


def saves(rank, method, steps):
    model = small_buckets(mlp())
    handle = gradwire.torch.attach(model, method, seed=5)
    train(model, rank, steps)
    file = io.BytesIO()
    torch.save({"model": model.module.state_dict(), "gradwire": handle.state_dict()}, file)
    residuals = [handle._averager.residual(i) for i in range(len(handle._names))]
    return file.getvalue(), residuals


def loads(rank, method, files):
    model = small_buckets(mlp())
    handle = gradwire.torch.attach(model, method, seed=99)
    states = {}
    for file in files:
        states |= torch.load(io.BytesIO(file))["gradwire"]
    handle.load_state_dict(states)
    assert handle.stats()["steps"] == 4
    residuals = [handle._averager.residual(i) for i in range(len(handle._names))]
    train(model, rank, 2, first=4)
    agree(model)
    return residuals


@pytest.mark.parametrize("method", ["topk(ratio=0.05)+ef+via(one_shot)", "onebit+ef"])
def test_the_same_world_takes_its_own(run_ranks, method):
    files, residuals = zip(*run_ranks(2, saves, method, 4), strict=True)
    for rank, restored in enumerate(run_ranks(2, loads, method, files)):
        for a, b in zip(restored, residuals[rank], strict=True):
            assert torch.equal(torch.from_numpy(a), torch.from_numpy(b))


@pytest.mark.parametrize("ranks", [1, 3])
def test_another_world_keeps_the_mean_over_ranks_of_residuals(run_ranks, ranks):
    # one_shot has worker residuals only, so that the sum can be read off them: (1/n)·Σ is what is still owed.
    method = "topk(ratio=0.05)+ef+via(one_shot)"
    files, residuals = zip(*run_ranks(2, saves, method, 4), strict=True)
    restored = run_ranks(ranks, loads, method, files)
    for i in range(len(residuals[0])):
        before = sum(torch.from_numpy(each[i]).double() for each in residuals) / 2
        after = sum(torch.from_numpy(each[i]).double() for each in restored) / ranks
        assert torch.allclose(before, after, rtol=1e-6, atol=1e-9)


def lacks_one(rank, files):
    handle = gradwire.torch.attach(small_buckets(mlp()), "onebit+ef")
    states = torch.load(io.BytesIO(files[0]))["gradwire"]
    with pytest.raises(gradwire.Error, match=r"lacks the states of ranks \[1\] of 2"):
        handle.load_state_dict(states)


def test_a_missing_rank_is_named(run_ranks):
    files, _ = zip(*run_ranks(2, saves, "onebit+ef", 2), strict=True)
    run_ranks(1, lacks_one, files)
