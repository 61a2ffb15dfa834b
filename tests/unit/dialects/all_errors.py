"""Every error class of the core, whichever file it is in, for tests that walk them through a dialect."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Final

import synapse.core
from synapse.core.errors import SynapseError

MODULES: Final = [
    importlib.import_module(f"synapse.core.{module.name}")
    for module in pkgutil.iter_modules(synapse.core.__path__)
    if module.name.endswith("errors")
]
ALL_ERRORS: Final = [
    kind
    for module in MODULES
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if issubclass(kind, SynapseError) and kind.__module__ == module.__name__
]


def blank(kind: type[SynapseError]) -> SynapseError:
    """An error of this class, without asking its constructor for anything."""
    error = kind.__new__(kind)
    Exception.__init__(error, "what happened")
    error.__dict__.update(allowed=["GET"], field="f", why="w", challenge="Bearer", retry_after=3)
    return error
