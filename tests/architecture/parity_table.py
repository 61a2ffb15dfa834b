"""Reads docs/reference/parity.md: what people do by commands, in `synapse top` and in the page."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.architecture.source_tree import ROOT

DOCUMENT = ROOT / "docs" / "reference" / "parity.md"
NONE = "\N{EN DASH}"
CELL = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Parity:
    """One thing that a person does, and where."""

    what: str
    verb: str
    key: str
    """Empty where `top` has none."""
    address: str
    role: str
    name: str


def parities() -> list[Parity]:
    """Returns the rows of the first table."""
    return [_parity(*cells) for cells in _rows(5)]


def left_out() -> dict[str, str]:
    """Returns the verbs that the views do not have, with the reason."""
    return {verb: reason for verbs, reason in _rows(2) for verb in CELL.findall(verbs)}


def _parity(what: str, verb: str, key: str, address: str, control: str) -> Parity:
    role, _, name = control.partition(" ")
    return Parity(what, _code(verb), "" if key == NONE else _code(key), _code(address), role, _code(name))


def _code(cell: str) -> str:
    """Returns what stands between the marks of code in a cell."""
    [code] = CELL.findall(cell)
    return str(code)


def _rows(columns: int) -> list[list[str]]:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    of_table = [row for row in rows if len(row) == columns and not set(row[0]) <= {"-"}]
    return of_table[1:]
