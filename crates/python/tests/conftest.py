"""Fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TRACES

pytest_plugins = ["pytester"]


@pytest.fixture
def traces() -> Path:
    """The traces of this repository."""
    return TRACES
