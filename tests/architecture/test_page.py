"""The dashboard's page: texts of agents can never become markup, and the page needs nothing but its own files."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from synapse.core.override import override
from tests.architecture.source_tree import PACKAGE, shown

PAGE = PACKAGE / "dashboard"
VENDOR = PAGE / "vendor"
# Each of these turns text into elements, or into code.
MARKUP = re.compile(
    r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|DOMParser|srcdoc|setHTMLUnsafe|setHTML"
    r"|document\s*\.\s*write(?:ln)?|eval|Function)\b\s*(?:\(|=)|\bDOMParser\b|[\"'`]javascript:"
)
IMPORT = re.compile(
    r"""^(?:import|export)\b[^;]*?\bfrom "([^"]+)"|^import "([^"]+)"|\bimport\("([^"]+)"\)""", re.MULTILINE
)
ELSEWHERE = re.compile(r"""["'`(](?:https?:)?//(?!www\.w3\.org/)\w""")


def sources(*suffixes: str) -> list[Path]:
    """Returns the page's own files, without what others wrote."""
    return [path for path in sorted(PAGE.rglob("*")) if path.suffix in suffixes and VENDOR not in path.parents]


def lines_with(pattern: re.Pattern[str], *suffixes: str) -> list[str]:
    return [
        f"{shown(path)}:{number} {line.strip()[:80]}"
        for path in sources(*suffixes)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_script_makes_markup_or_code_from_text() -> None:
    assert lines_with(MARKUP, ".js") == []


def test_the_rule_finds_what_it_forbids() -> None:
    assert MARKUP.search("box.innerHTML = text")
    assert MARKUP.search("box.insertAdjacentHTML('beforeend', text)")
    assert MARKUP.search("new Function('x')(1)")
    assert not MARKUP.search("box.textContent = text")


def test_every_imported_module_is_there() -> None:
    missing = [
        f"{shown(path)} imports {name}"
        for path in sources(".js")
        for name in ("".join(names) for names in IMPORT.findall(path.read_text(encoding="utf-8")))
        if not (name.startswith(("./", "../")) and (path.parent / name).resolve().is_file())
    ]

    assert missing == []


def test_the_page_asks_no_other_server() -> None:
    assert lines_with(ELSEWHERE, ".js", ".css", ".html") == []


class _Elements(HTMLParser):
    """Collects what the content security policy would refuse, and the files that the page names."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []
        self.files: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and not given.get("src")):
            self.refused.append(f"<{tag}>")
        self.refused += [f"{tag} {name}" for name in given if name == "style" or name.startswith("on")]
        self.files += [address for name in ("src", "href") if (address := given.get(name))]


def test_the_page_has_no_inline_script_or_style_and_names_files_that_exist() -> None:
    elements = _Elements()
    elements.feed((PAGE / "index.html").read_text(encoding="utf-8"))

    assert elements.refused == []
    assert [name for name in elements.files if not (PAGE / name.removeprefix("/assets/")).is_file()] == []
