"""A small transformer that learns to write text, one character at a time, on several workers.

    torchrun --nproc-per-node 2 examples/pytorch/char_gpt.py --spec onebit+ef
    gradwire ab --arm none --arm onebit+ef --arm 'quant(bits=4)+ef' --metric loss --better lower --margin 0.05 -- \\
        torchrun --nproc-per-node 2 examples/pytorch/char_gpt.py --spec {spec} --seed {seed} --metrics {metrics}

Without --text it reads the documents and sources of this repository.
"""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from common import parser, report

ROOT = Path(__file__).parents[2]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_of_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norm_of_mlp(x))


class CharGPT(nn.Module):
    """Pre-norm decoder with learned positions; the logits of the next character."""

    def __init__(self, characters: int, context: int, width: int = 128, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.characters(tokens) + self.positions.weight[:tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def read(files: list[str]) -> torch.Tensor:
    paths = [Path(file) for file in files] or sorted(
        path for folder in ("comm", "compressors", "core", "docs", "include", "overlap")
        for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".hpp", ".md"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    number = {character: i for i, character in enumerate(sorted(set(text)))}
    return torch.tensor([number[character] for character in text])


def windows(text: torch.Tensor, starts: torch.Tensor, context: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = text[starts[:, None] + torch.arange(context + 1)]
    return rows[:, :-1], rows[:, 1:]


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--text", nargs="+", default=[], metavar="FILE", help="to learn from")
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--batch", type=int, default=16, help="of each worker")
    arguments.add_argument("--context", type=int, default=64, help="characters")
    arguments.add_argument("--lr", type=float, default=2e-3)
    options = arguments.parse_args()

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    text = read(options.text)
    split = len(text) * 9 // 10
    train, held_out = text[:split], text[split:]
    torch.manual_seed(options.seed)
    model = DistributedDataParallel(CharGPT(int(text.max()) + 1, options.context))
    handle = gradwire.torch.attach(model, options.spec, seed=options.seed) if options.spec else None

    own = torch.Generator().manual_seed(options.seed * dist.get_world_size() + dist.get_rank())  # other text on each rank
    even = torch.arange(0, len(held_out) - options.context, options.context)
    exam = windows(held_out, even, options.context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=options.steps + 1)
    with gradwire.torch.metrics(options.metrics, handle, spec=options.spec, seed=options.seed) as log:
        for step in range(1, options.steps + 1):
            starts = torch.randint(len(train) - options.context, (options.batch,), generator=own)
            optimizer.zero_grad()
            loss = loss_of(model, windows(train, starts, options.context))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            log.step(loss.item())
            if step % 50 == 0 or step == options.steps:
                with torch.no_grad():
                    value = loss_of(model.module, exam).item()
                log.eval("loss", value)
    report(options.spec, "loss on text held out", value, handle)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
