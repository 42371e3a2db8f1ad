"""The package's own types, and that its stub is the extension's."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from gradwire import _core

ROOT = Path(__file__).parents[2]


def test_mypy_in_strict_mode_has_nothing_to_say():
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir",
                           str(ROOT / "build" / "mypy"), "-p", "gradwire"],
                          capture_output=True, text=True, cwd="/")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def public(names):
    return {name for name in names if not name.startswith("_") or name == "__version__"}


def test_the_stub_names_what_the_extension_has():
    stub = ast.parse((Path(_core.__file__).parent / "_core.pyi").read_text())
    declared = {}
    for node in stub.body:
        if isinstance(node, ast.AnnAssign):
            declared[node.target.id] = set()
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            declared[node.name] = {each.name for each in ast.walk(node) if isinstance(each, ast.FunctionDef)} - {node.name}
    assert public(declared) == public(vars(_core))
    for name, members in declared.items():
        assert public(members) == (public(vars(getattr(_core, name))) if isinstance(getattr(_core, name), type) else set())
