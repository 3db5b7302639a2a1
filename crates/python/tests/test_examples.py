"""The examples run, and the guide shows what they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, TRACES

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str) -> str:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, encoding="utf-8", cwd=ROOT, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_policy_of_thirty_lines_stands_in_the_table():
    lines = run("keep_decisions.py").splitlines()
    assert [line.split()[0] for line in lines] == ["policy", "none", "observation-masking", "keep-decisions"]
    assert lines[3].split()[1] != "0"


def test_the_guide_shows_the_example_as_it_is():
    code = (EXAMPLES / "keep_decisions.py").read_text(encoding="utf-8")
    guide = (ROOT / "docs" / "PYTHON.md").read_text(encoding="utf-8")
    block = next(block for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "class KeepDecisions" in block)
    assert block in code and len(block.splitlines()) <= 30


def test_the_guide_runs():
    guide = (ROOT / "docs" / "PYTHON.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    before = os.getcwd()
    os.chdir(ROOT)
    try:
        for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL):
            if "# not run" not in block.splitlines()[0]:
                exec(compile(block, "docs/PYTHON.md", "exec"), names)
    finally:
        os.chdir(before)
    assert TRACES.is_dir() and "comparison" in names


def test_the_notebook_runs():
    pytest.importorskip("polars")
    assert "observation-masking" in run("frames.py")
