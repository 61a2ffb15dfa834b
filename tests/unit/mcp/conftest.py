"""The home and the fake hosts of the command line's tests."""

from __future__ import annotations

from tests.unit.cli.conftest import home, start

__all__ = ["home", "start"]
