"""The pytest plugin, and that its text is that of the Rust crate."""

from __future__ import annotations

import re

from helpers import ROOT

from condenser import Event, View

TEST = """
import pytest
from condenser import Event, View

@pytest.mark.parametrize("text", ["{text}"])
def test_view(condenser_snapshot, text):
    view = View([Event("01J8Z3", "message", source="user", role="user", content=text)])
    condenser_snapshot(view)
    condenser_snapshot(view, "kinds")
"""


def test_a_snapshot_is_written_once_and_compared_afterwards(pytester):
    pytester.makepyfile(test_it=TEST.replace("{text}", "hello"))
    pytester.runpytest().assert_outcomes(failed=1)
    pytester.runpytest("--condenser-update").assert_outcomes(passed=1)
    folder = pytester.path / "snapshots"
    assert sorted(file.name for file in folder.iterdir()) == ["test_it__test_view-hello-2.snap", "test_it__test_view-hello.snap"]
    pytester.runpytest().assert_outcomes(passed=1)
    file = folder / "test_it__test_view-hello.snap"
    file.write_text(file.read_text().replace("hello", "goodbye"))
    result = pytester.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*hello*"])


def test_the_text_is_that_of_the_rust_crate():
    source = (ROOT / "crates" / "condenser" / "src" / "render.rs").read_text(encoding="utf-8")
    expected = re.search(r'@r"\n(.*?)//! "\);', source, re.DOTALL)[1].replace("//! ", "").replace("//!", "")
    view = View([Event("01J8Z3", "message", source="user", role="user", content="hello\r\n")])
    assert view.render() == expected
