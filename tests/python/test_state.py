import io

import pytest
import torch
import torch.distributed.checkpoint as dcp

import gradwire.torch
from gradwire.torch.checkpoint import LoadPlanner
from models import agree, mlp, small_buckets, train


class Files:
    """One torch.save file for each rank; all of them are merged for another number of ranks."""

    def save(self, folder, rank, model, handle):
        torch.save({"model": model.module.state_dict(), "gradwire": handle.state_dict()}, folder / f"{rank}.pt")

    def load(self, folder, rank, model, handle):
        files = [torch.load(file) for file in sorted(folder.glob("*.pt"))]
        model.module.load_state_dict(files[0]["model"])
        handle.load_state_dict({key: value for file in files for key, value in file["gradwire"].items()})


class Distributed:
    def save(self, folder, rank, model, handle):
        dcp.save({"model": model.module.state_dict(), "gradwire": handle}, checkpoint_id=folder)

    def load(self, folder, rank, model, handle):
        weights = model.module.state_dict()
        dcp.load({"model": weights, "gradwire": handle}, checkpoint_id=folder, planner=LoadPlanner())
        model.module.load_state_dict(weights)


stores = pytest.mark.parametrize("store", [Files(), Distributed()], ids=["torch.save", "torch.distributed.checkpoint"])
SEED = 5  # of stochastic rounding


def residuals(handle):
    return [torch.from_numpy(handle._averager.residual(i)) for i in range(len(handle._names))]


# With find_unused_parameters DDP never rebuilds its buckets. Otherwise the first backward behind a restart comes as one
# bucket, in which other ranks own the shards and sums have another order: right as well, but other bits.
FIXED = {"find_unused_parameters": True}


def saves(rank, method, folder, store):
    model = small_buckets(mlp(), **FIXED)
    handle = gradwire.torch.attach(model, method, seed=SEED)
    train(model, rank, 4, momentum=0)
    store.save(folder, rank, model, handle)
    kept = residuals(handle)
    train(model, rank, 3, first=4, momentum=0)
    return [each.numpy() for each in kept], agree(model).numpy()


def loads(rank, method, folder, store):
    model = small_buckets(mlp(), **FIXED)
    handle = gradwire.torch.attach(model, method, seed=99)
    store.load(folder, rank, model, handle)
    assert handle.stats()["steps"] == 4
    restored = residuals(handle)
    train(model, rank, 3, first=4, momentum=0)
    return [each.numpy() for each in restored], agree(model).numpy()


@stores
@pytest.mark.parametrize("method", ["topk(ratio=0.05)+ef+via(one_shot)", "onebit+ef",
                                    "quant(bits=4,block=64,round=stochastic)+ef+warmup(steps=5)"])
def test_restored_on_as_many_ranks_the_next_steps_are_those_of_an_uninterrupted_run(run_ranks, tmp_path, store, method):
    before = run_ranks(3, saves, method, tmp_path, store)
    after = run_ranks(3, loads, method, tmp_path, store)
    for (kept, end), (restored, same_end) in zip(before, after, strict=True):
        assert all((a == b).all() for a, b in zip(kept, restored, strict=True))
        assert (end == same_end).all()


@stores
@pytest.mark.parametrize("ranks", [1, 3])
def test_another_world_keeps_the_mean_over_ranks_of_residuals(run_ranks, tmp_path, store, ranks):
    # one_shot has worker residuals only, so that the sum can be read off them: (1/n)·Σ is what is still owed.
    method = "topk(ratio=0.05)+ef+via(one_shot)"
    kept, _ = zip(*run_ranks(2, saves, method, tmp_path, store), strict=True)
    restored, _ = zip(*run_ranks(ranks, loads, method, tmp_path, store), strict=True)
    for i in range(len(kept[0])):
        before = sum(torch.from_numpy(each[i]).double() for each in kept) / 2
        after = sum(torch.from_numpy(each[i]).double() for each in restored) / ranks
        assert torch.allclose(before, after, rtol=1e-6, atol=1e-9)


def saves_in_memory(rank):
    model = small_buckets(mlp())
    handle = gradwire.torch.attach(model, "onebit+ef")
    train(model, rank, 2)
    file = io.BytesIO()
    torch.save(handle.state_dict(), file)
    return file.getvalue()


def lacks_one(rank, file):
    handle = gradwire.torch.attach(small_buckets(mlp()), "onebit+ef")
    with pytest.raises(gradwire.Error, match=r"lacks the states of ranks \[1\] of 2"):
        handle.load_state_dict(torch.load(io.BytesIO(file)))


def test_a_missing_rank_is_named(run_ranks):
    run_ranks(1, lacks_one, run_ranks(2, saves_in_memory)[0])
