"""Bad input and dying ranks."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from models import agree, batch, mlp, small_buckets, train

over_both = pytest.mark.parametrize("transport", ["gloo", "torch"])


def refusals(rank):
    def refused(text, model, *arguments, **options):
        with pytest.raises(gradwire.Error, match=text):
            gradwire.torch.attach(model, *arguments, **options)

    refused("takes a DistributedDataParallel, not Sequential", mlp(), "none")
    model = DistributedDataParallel(mlp())
    refused("unknown method 'twobit'", model, "twobit")
    refused("diverges", model, "quant(bits=1,round=stochastic)+ef")
    refused("=>", model, "none", rules=["embed"])
    refused("timeout", model, "none", timeout=0)
    refused("transport='nccl' is not known: use one of auto, gloo, torch", model, "none", transport="nccl")
    refused("float64", DistributedDataParallel(mlp(torch.float64)), "none")
    refused("sparse=False", DistributedDataParallel(nn.EmbeddingBag(50, 8, sparse=True)), "none")
    torch._dynamo.config.optimize_ddp = "python_reducer"
    refused("bypasses", model, "none")
    torch._dynamo.config.optimize_ddp = True
    gradwire.torch.attach(model, "none")
    refused("attached to this model already", model, "none")


def test_what_cannot_be_attached_is_refused_with_the_reason(run_ranks):
    run_ranks(1, refusals)


def old_torch(rank):
    torch.__version__ = "2.3.1+cpu"
    with pytest.raises(gradwire.Error, match="too old"):
        gradwire.torch.attach(DistributedDataParallel(mlp()), "none")


def test_an_old_torch_is_refused(run_ranks):
    run_ranks(1, old_torch)


def differing(rank):
    model = DistributedDataParallel(mlp())
    with pytest.raises(gradwire.Error) as raised:
        gradwire.torch.attach(model, "onebit+ef" if rank == 1 else "none", timeout=20)
    assert raised.value.code == "mismatch"
    return str(raised.value)


def test_ranks_with_different_specs_all_refuse_and_name_the_rank(run_ranks):
    for text in run_ranks(3, differing):
        assert "rank 1" in text and "method" in text


def loss_of_step(model, rank, step):
    x, y = batch(rank, step)
    return nn.functional.cross_entropy(model(x), y)


def dies(rank, transport):
    model = small_buckets(mlp())
    gradwire.torch.attach(model, "onebit+ef", timeout=10, transport=transport)
    train(model, rank, 3)
    loss = loss_of_step(model, rank, 3)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(gradwire.Error) as raised:
        loss.backward()
        train(model, rank, 1, first=4)
    return str(raised.value)


@over_both
def test_a_rank_that_is_killed_is_named_by_the_others(run_ranks, transport):
    first, _, third = run_ranks(3, dies, transport, may_die=(1,))
    assert "rank 1" in first and "rank 1" in third


def hangs(rank, transport):
    pids = [None] * 3
    dist.all_gather_object(pids, os.getpid())
    others = dist.new_group([0, 2])
    model = small_buckets(mlp())
    gradwire.torch.attach(model, "onebit+ef", timeout=2, transport=transport)
    train(model, rank, 3)
    loss = loss_of_step(model, rank, 3)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)  # with all its threads: connections stay open, nobody answers
    with pytest.raises(gradwire.Error) as raised:
        loss.backward()
        train(model, rank, 1, first=4)
    assert " T " in Path(f"/proc/{pids[1]}/stat").read_text()  # they did not wait for it to go on or to die
    dist.barrier(others)
    if rank == 0:
        os.kill(pids[1], signal.SIGKILL)
    return raised.value.code, str(raised.value)


@over_both
def test_a_rank_that_hangs_is_named_by_the_others_within_the_timeout(run_ranks, transport):
    first, _, third = run_ranks(3, hangs, transport, may_die=(1,))
    for code, text in (first, third):
        assert code == "timeout" and "rank 1" in text


def chooses(rank, transport, has_gloo):
    gradwire._core.has_gloo = has_gloo[rank]
    model = small_buckets(mlp())
    try:
        handle = gradwire.torch.attach(model, "onebit+ef", timeout=20, transport=transport[rank])
    except gradwire.Error as why:
        return why.code, str(why)
    train(model, rank, 2)
    return handle.stats()["transport"]


@pytest.mark.parametrize(("transport", "has_gloo", "chosen"), [
    (["auto", "auto"], [True, True], "gloo"),
    (["auto", "auto"], [True, False], "torch"),
    (["torch", "torch"], [True, True], "torch"),
])
def test_all_ranks_choose_one_transport(run_ranks, transport, has_gloo, chosen):
    assert run_ranks(2, chooses, transport, has_gloo) == [chosen, chosen]


def trains_over_another_backend(rank):
    def make(store, rank, size, timeout):
        return dist.ProcessGroupGloo(store, rank, size, timeout)

    dist.Backend.register_backend("another", make, devices=["cpu"])
    group = dist.new_group(backend="another")
    model = small_buckets(mlp(), process_group=group)
    handle = gradwire.torch.attach(model, "onebit+ef")
    train(model, rank, 2)
    agree(model)
    return handle.stats()["transport"]


def test_a_group_of_another_backend_is_served_through_torch(run_ranks):
    assert run_ranks(2, trains_over_another_backend) == ["torch", "torch"]


@pytest.mark.parametrize(("transport", "has_gloo", "words"), [
    (["auto", "torch"], [True, True], "rank 1 attached with transport='torch' and rank 0 with 'auto'"),
    (["gloo", "gloo"], [True, False], "rank 1 was built without libgloo"),
])
def test_transports_that_cannot_be_are_refused_on_all_ranks(run_ranks, transport, has_gloo, words):
    for code, text in run_ranks(2, chooses, transport, has_gloo):
        assert code == "mismatch" and words in text


def comes_alone(rank):
    model = small_buckets(mlp())
    if rank == 1:
        dist.barrier()
        return
    with pytest.raises(gradwire.Error, match="rank 1 did not come within 1") as raised:
        gradwire.torch.attach(model, "none", timeout=1)
    dist.barrier()
    return raised.value.code


SCRIPT = """
import sys, time, torch, torch.distributed as dist, gradwire.torch
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 2), rank=int(sys.argv[2]), world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]),
                                                  bucket_cap_mb=0.01)
gradwire.torch.attach(model, "onebit+ef", timeout=20)
x = torch.randn(4, 64)
model(x).sum().backward()  # after it DDP makes the small buckets
if sys.argv[2] == "1":
    def stop(gradient):
        raise ValueError("bad number")
    model.module[0].weight.register_hook(stop)
model(x).sum().backward()
"""


def test_an_exception_in_backward_ends_the_script_with_buckets_under_way(tmp_path):
    ranks = [subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / "store"), str(rank)],
                              stderr=subprocess.PIPE, text=True) for rank in range(2)]
    ends = [rank.communicate(timeout=100)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1], ends
    assert "ValueError: bad number" in ends[1]
    assert "gradwire._error.Error" in ends[0] and "rank 1" in ends[0]


def test_a_rank_that_does_not_attach_is_named(run_ranks):
    assert run_ranks(2, comes_alone)[0] == "timeout"
