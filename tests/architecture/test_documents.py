"""Generated documents are current, and what the README names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate import DOCS, documents

ROOT = DOCS.parent
WRITTEN = documents()


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_a_generated_document_is_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == WRITTEN[path], "run scripts/docs"


@pytest.mark.parametrize("document", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda path: path.name)
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text(encoding="utf-8"))

    assert [link for link in links if not (document.parent / link).exists()] == []
