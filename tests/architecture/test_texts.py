"""Nothing in the repository speaks of one machine, and every exception from a rule gives its reason."""

from __future__ import annotations

import re

from tests.architecture.source_tree import PACKAGE, ROOT, python_files, shown, text_files, walk

# Spelled in parts, so that this file does not accuse itself.
PERSONAL_FOLDERS = "|".join(("root", "home", "work", "Users"))
MACHINE_PATH = re.compile(rf"(?<![\w.~}}])/(?:{PERSONAL_FOLDERS})/")
PUBLIC_HOSTS = {"pypi.org", "files.pythonhosted.org"}

IGNORE = re.compile(r"# (?:type: ignore|pyright: ignore|noqa|pragma:)")
# A code in brackets or after a colon, then a reason of at least two words after `#` or `-`.
EXPLAINED = re.compile(r"# (?:(?:type|pyright): ignore\[[\w, -]+\]|noqa: [A-Z0-9, ]+|pragma: no \w+)\s+[#-] \S+ \S+")


def test_no_file_names_a_path_of_one_machine() -> None:
    found = [
        f"{shown(path)}:{number} {line.strip()[:80]}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]

    assert found == []


def test_every_module_of_ours_is_run_without_the_current_folder_in_its_path() -> None:
    files = [path for path in walk(PACKAGE) if path.suffix in (".py", ".toml")]
    started = [
        f"{shown(path)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for place in re.finditer(r'"-[mc]", "(?:synapse|import|from)|sys\.executable, str\(', line)
        if not line[: place.start()].endswith(('"-P", ', '"-I", ', '"-I", "-S", '))
    ]

    assert started == []


def test_the_lock_names_only_the_public_index() -> None:
    hosts = set(re.findall(r"\w+://([^/\"]+)", (ROOT / "uv.lock").read_text(encoding="utf-8")))

    assert hosts == PUBLIC_HOSTS


def test_the_rule_for_ignore_comments_wants_a_code_and_a_reason() -> None:
    tag = "# " + "noqa"
    assert EXPLAINED.search(f"x = 1  {tag}: S603  # the command is the profile's")
    assert not EXPLAINED.search(f"x = 1  {tag}: S603")
    assert not EXPLAINED.search(f"x = 1  {tag}  # because it is so")


def test_every_ignore_comment_has_a_code_and_a_reason() -> None:
    silent = [
        f"{shown(path)}:{number} {line.strip()[:100]}"
        for path in python_files()
        if path.name != "test_texts.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if IGNORE.search(line) and not EXPLAINED.search(line)
    ]

    assert silent == []
