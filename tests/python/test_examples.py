"""The examples, as users start them, and as arms of an A/B test where the program is built."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import free_port

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "pytorch"
PROGRAM = ROOT / "build" / "gradwire"


def torchrun():
    # Not by a rendezvous, which wants this machine's name to resolve.
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
            "--master-port", str(free_port())]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def values(records):
    return [each["value"] for each in records if each["event"] == "eval"]


def test_digits_learns_and_writes_the_records_of_the_contract(tmp_path):
    out = run(*torchrun(), "examples/pytorch/digits.py", "--metrics", str(tmp_path / "m"))
    assert "times fewer bytes" in out
    records = read(tmp_path / "m")
    assert records[0]["event"] == "start" and records[0]["world"] == 2 and records[0]["spec"] == "onebit+ef"
    assert records[-1]["event"] == "end" and records[-1]["status"] == "ok"
    steps = [each for each in records if each["event"] == "step"]
    assert [each["step"] for each in steps] == list(range(1, records[-1]["steps"] + 1))
    assert sum(each["wire_bytes"] for each in steps) == records[-1]["wire_bytes"]
    assert values(records)[-1] > 0.85  # guessing: 0.1


def test_char_gpt_learns_letters(run_script, tmp_path):
    (tmp_path / "text").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    out, _ = run_script(2, EXAMPLES / "char_gpt.py", "--text", str(tmp_path / "text"), "--steps", "50", "--context", "32",
                        "--batch", "4", "--metrics", str(tmp_path / "m"))
    assert "times fewer bytes" in out
    assert values(read(tmp_path / "m"))[-1] < 2.0  # knowing nothing of 28 characters: ln 28 = 3.3


@pytest.mark.parametrize("spec", ["", "onebit+ef"])
def test_resnet50_on_two_workers_with_and_without_gradwire(run_script, tmp_path, spec):
    pytest.importorskip("torchvision")
    out, _ = run_script(2, EXAMPLES / "resnet50.py", "--samples", "8", "--size", "32", "--batch", "2", "--spec", spec,
                        "--metrics", str(tmp_path / "m"))
    assert out.startswith("onebit+ef: loss" if spec else "plain DDP: loss")
    end = read(tmp_path / "m")[-1]
    assert end["status"] == "ok" and end["steps"] == 2
    if spec:  # norms and biases, 53,130 of its 23,528,522 numbers, go dense; the rest as a sign, and a scale for 1,024
        bits = (53_130 * 32 + (23_528_522 - 53_130) * (1 + 32 / 1024)) / 23_528_522
        assert end["raw_bytes"] / end["wire_bytes"] == pytest.approx(32 / bits, rel=0.01)


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built")
def test_a_script_is_an_arm(tmp_path):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run(str(PROGRAM), "ab", "--arm", "none", "--arm", "bf16", "--seeds", "2", "--margin", "0.05", "--out",
        str(tmp_path / "ab"), "--", *torchrun(), "examples/pytorch/digits.py", "--epochs", "2", "--spec", "{spec}",
        "--seed", "{seed}", "--metrics", "{metrics}", env=environment)
    records = read(tmp_path / "ab" / "results.jsonl")
    verdicts = {each["arm"]: each for each in records if each["event"] == "verdict"}
    assert 1.9 < verdicts["bf16"]["compression"] <= 2  # 16 bits instead of 32, small tensors dense
    assert [each["status"] for each in records if each["event"] == "run"] == ["ok"] * 4
