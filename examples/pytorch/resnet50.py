"""ResNet-50 on two workers, as every multi-GPU guide has it, with and without gradwire by one flag.

    torchrun --nproc-per-node 2 examples/pytorch/resnet50.py --data imagenet/train --spec ''          # plain DDP
    torchrun --nproc-per-node 2 examples/pytorch/resnet50.py --data imagenet/train --spec onebit+ef
    torchrun --nproc-per-node 2 examples/pytorch/resnet50.py --samples 64 --size 32 --batch 8         # small, made up

One GPU for each worker where there are GPUs, else the CPU; with gradwire the CPU, until it has CUDA.
"""

import os

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import transforms

import gradwire.torch
from common import parser, report


def images(folder: str, samples: int, size: int) -> tuple[Dataset, int]:
    if not folder:
        return torchvision.datasets.FakeData(samples, (3, size, size), transform=transforms.ToTensor()), 10
    shape = transforms.Compose([transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(),
                                transforms.ToTensor()])
    found = torchvision.datasets.ImageFolder(folder, shape)
    return found, len(found.classes)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--data", default="", metavar="FOLDER", help="one folder a class; without: made-up images")
    arguments.add_argument("--samples", type=int, default=512, help="made-up images")
    arguments.add_argument("--size", type=int, default=224, help="of an image, in pixels")
    arguments.add_argument("--epochs", type=int, default=1)
    arguments.add_argument("--batch", type=int, default=32, help="of each worker")
    arguments.add_argument("--lr", type=float, default=0.01)
    options = arguments.parse_args()

    cuda = torch.cuda.is_available() and not options.spec  # gradwire has no CUDA yet
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(options.seed)

    dataset, classes = images(options.data, options.samples, options.size)
    sampler = DistributedSampler(dataset, seed=options.seed)
    loader = DataLoader(dataset, batch_size=options.batch, sampler=sampler, drop_last=True)
    model = torchvision.models.resnet50(num_classes=classes).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if cuda else None)
    handle = gradwire.torch.attach(model, options.spec, seed=options.seed) if options.spec else None

    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4)
    with gradwire.torch.metrics(options.metrics, handle, spec=options.spec, seed=options.seed) as log:
        for epoch in range(options.epochs):
            sampler.set_epoch(epoch)  # else every epoch has the same order
            for batch, labels in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(batch.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
                log.step(loss.item())
            total = loss.detach()
            dist.all_reduce(total)
            value = total.item() / dist.get_world_size()
            log.eval("loss", value)
    report(options.spec, "loss", value, handle)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
