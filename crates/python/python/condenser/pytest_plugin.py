"""A pytest plugin: pins what a model is shown.

The fixture `condenser_snapshot` compares the text of a view, the same as the Rust crate's, with a file beside the test,
`snapshots/<test file>__<test>.snap`. `pytest --condenser-update` writes it anew.
"""

from __future__ import annotations

import re
from typing import Callable, Optional, Union

import pytest

from ._native import View


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--condenser-update`."""
    group = parser.getgroup("condenser")
    group.addoption("--condenser-update", action="store_true", help="write the snapshots of views anew")


@pytest.fixture
def condenser_snapshot(request: pytest.FixtureRequest) -> Callable[..., None]:
    """A function of a view, and of the arguments of `View.render`. Each call in a test has a file of its own."""
    path = request.path
    test = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    calls = 0

    def check(view: View, mode: Union[str, int, None] = None, *, tokenizer: Optional[str] = None) -> None:
        nonlocal calls
        calls += 1
        file = path.parent / "snapshots" / f"{path.stem}__{test}{f'-{calls}' if calls > 1 else ''}.snap"
        text = view.render(mode, tokenizer=tokenizer)
        if request.config.getoption("--condenser-update"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")
        elif not file.exists():
            pytest.fail(f"there is no snapshot {file}; `pytest --condenser-update` writes it", pytrace=False)
        assert text == file.read_text(encoding="utf-8")

    return check
