"""Names are honest: a room without a noun is a missing noun."""

from __future__ import annotations

import re

from tests.architecture.source_tree import PACKAGE, python_files, shown, walk

EMPTY_WORDS = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "managers", "base", "stuff", "shared"}


def empty_words(name: str) -> set[str]:
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return {word.lower() for word in words} & EMPTY_WORDS


def test_the_rule_sees_empty_words_in_both_spellings() -> None:
    assert empty_words("task_utils") == {"utils"}
    assert empty_words("AgentManager") == {"manager"}
    assert empty_words("HTTPBase") == {"base"}
    assert empty_words("database") == set()


def test_no_module_or_folder_has_an_empty_name() -> None:
    files = [*python_files("tests", "benchmarks"), *walk(PACKAGE)]

    dishonest = [shown(path) for path in files if any(empty_words(part) for part in shown(path).split("/"))]

    assert dishonest == []


def test_no_class_has_an_empty_name() -> None:
    dishonest = [
        f"{shown(path)} {name}"
        for path in python_files()
        for name in re.findall(r"^ *class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if empty_words(name)
    ]

    assert dishonest == []
