"""Handwritten digits on several workers: the DistributedDataParallel loop of every guide, and two lines of gradwire.

    torchrun --nproc-per-node 2 examples/pytorch/digits.py --spec onebit+ef
    gradwire ab --arm none --arm onebit+ef --seeds 3 -- \\
        torchrun --nproc-per-node 2 examples/pytorch/digits.py --spec {spec} --seed {seed} --metrics {metrics}
"""

import gzip
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import gradwire.torch
from common import parser, report

DATA = Path(__file__).parents[1] / "data" / "digits.csv.gz"


def digits() -> tuple[TensorDataset, TensorDataset]:
    with gzip.open(DATA, "rt") as file:
        rows = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.float32))
    images, labels = rows[:, :64] / 16, rows[:, 64].long()
    return TensorDataset(images[:1437], labels[:1437]), TensorDataset(images[1437:], labels[1437:])


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--epochs", type=int, default=8)
    arguments.add_argument("--batch", type=int, default=16, help="of each worker")
    arguments.add_argument("--lr", type=float, default=0.1)
    options = arguments.parse_args()

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                                                  nn.Linear(128, 10)))
    handle = gradwire.torch.attach(model, options.spec, seed=options.seed) if options.spec else None

    train, test = digits()
    sampler = DistributedSampler(train, seed=options.seed)
    loader = DataLoader(train, batch_size=options.batch, sampler=sampler, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    with gradwire.torch.metrics(options.metrics, handle, spec=options.spec, seed=options.seed) as log:
        for epoch in range(options.epochs):
            sampler.set_epoch(epoch)
            for images, labels in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                log.step(loss.item())
            with torch.no_grad():
                accuracy = (model.module(test.tensors[0]).argmax(1) == test.tensors[1]).float().mean().item()
            log.eval("accuracy", accuracy)
    report(options.spec, "accuracy", accuracy, handle)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
