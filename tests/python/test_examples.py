"""The examples, as users start them, and as arms of an A/B test where the program is built."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "build" / "gradwire"

def torchrun():
    # Not by a rendezvous, which wants this machine's name to resolve.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
            "--master-port", str(port)]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_digits_learns_and_writes_the_records_of_the_contract(tmp_path):
    out = run(*torchrun(), "examples/pytorch/digits.py", "--metrics", str(tmp_path / "m"))
    assert "times fewer bytes" in out
    records = [json.loads(line) for line in (tmp_path / "m").read_text().splitlines()]
    assert records[0]["event"] == "start" and records[0]["world"] == 2 and records[0]["spec"] == "onebit+ef"
    assert records[-1]["event"] == "end" and records[-1]["status"] == "ok"
    steps = [each for each in records if each["event"] == "step"]
    assert [each["step"] for each in steps] == list(range(1, records[-1]["steps"] + 1))
    assert sum(each["wire_bytes"] for each in steps) == records[-1]["wire_bytes"]
    assert [each["value"] for each in records if each["event"] == "eval"][-1] > 0.85  # guessing: 0.1


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built")
def test_a_script_is_an_arm(tmp_path):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run(str(PROGRAM), "ab", "--arm", "none", "--arm", "bf16", "--seeds", "2", "--margin", "0.05", "--out",
        str(tmp_path / "ab"), "--", *torchrun(), "examples/pytorch/digits.py", "--epochs", "2", "--spec", "{spec}",
        "--seed", "{seed}", "--metrics", "{metrics}", env=environment)
    records = [json.loads(line) for line in (tmp_path / "ab" / "results.jsonl").read_text().splitlines()]
    verdicts = {each["arm"]: each for each in records if each["event"] == "verdict"}
    assert 1.9 < verdicts["bf16"]["compression"] <= 2  # 16 bits instead of 32, small tensors dense
    assert [each["status"] for each in records if each["event"] == "run"] == ["ok"] * 4
