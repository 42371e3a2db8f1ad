"""Every Python snippet of the documents, as it stands there: those of one section make one script, run on two ranks."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

# What a reader brings along.
READERS_OWN = """
import torch
from torch.utils.data import TensorDataset
from models import agree, batch, mlp as build_model
dataset = TensorDataset(*batch(0, 0, (64, 32)))
loss_of = torch.nn.functional.cross_entropy
"""
# The snippets of pytorch.md go into a script that is there.
READERS_SCRIPT = READERS_OWN + """
import os
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import gradwire.torch
dist.init_process_group("gloo")
rank, spec, seed, folder = dist.get_rank(), "onebit+ef", 1, os.environ["SNIPPETS"]
path = folder + "/metrics"
model = DistributedDataParallel(build_model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss, accuracy = torch.tensor(1.0), 0.5
"""
ATTACH = """
handle = gradwire.torch.attach(model, "onebit+ef")
"""
STEP_AND_CHECK = """
inputs, labels = batch(int(os.environ["RANK"]), 1)
before = handle.stats()["steps"]
loss_of(model(inputs), labels).backward()
assert handle.stats()["steps"] == before + 1
agree(model)
"""
CHECK = """
assert handle.stats()["steps"] > 1
agree(model)
"""


def snippets(file):
    """The Python of each section, by heading."""
    result = {}
    for section in re.split(r"^#+ ", (DOCS / file).read_text(), flags=re.MULTILINE)[1:]:
        blocks = re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
        if blocks:
            result[section.splitlines()[0]] = "\n".join(blocks)
    return result


@pytest.mark.parametrize("section", snippets("pytorch-guides.md"))
def test_a_guide(run_script, tmp_path, section):
    needed = section.lower()
    if needed in ("accelerate", "lightning") and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    script = tmp_path / "guide.py"
    script.write_text(READERS_OWN + snippets("pytorch-guides.md")[section] + CHECK)
    run_script(2, script)


@pytest.mark.parametrize("section", snippets("pytorch.md"))
def test_a_snippet(run_script, tmp_path, monkeypatch, section):
    monkeypatch.setenv("SNIPPETS", str(tmp_path))
    code = snippets("pytorch.md")[section]
    attach = "" if "attach(" in code else ATTACH
    script = tmp_path / "snippet.py"
    script.write_text(READERS_SCRIPT + attach + code + STEP_AND_CHECK)
    run_script(2, script)
