"""The house has the rooms of its map, and no others. The arrows between them are import-linter's (scripts/check)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from synapse.core.task_metadata import RESERVED_KEYS
from tests.architecture.source_tree import FOLDERS, LEFT_BEHIND, PACKAGE, ROOT, parse, python_files, shown, walk

# Each folder of the package, with the folders that it may hold. The dashboard's static files lie as they like.
ROOMS = {
    "core": set[str](),
    "terminal": {"profiles", "signals"},
    "tasks": set[str](),
    "dialects": {"a2a_v1", "a2a_v0_3", "synapse", "supervisor", "hub", "dashboard"},
    "store": {"migrations"},
    "registry": set[str](),
    "config": set[str](),
    "net": set[str](),
    "worktrees": set[str](),
    "client": set[str](),
    "server": set[str](),
    "auth": set[str](),
    "push": set[str](),
    "external": set[str](),
    "drivers": {"pty", "scripted"},
    "attach": set[str](),
    "mcp": set[str](),
    "notices": set[str](),
    "host": set[str](),
    "gateway": set[str](),
    "fleet": set[str](),
    "link": set[str](),
    "calibration": {"recipes"},
    "services": set[str](),
    "teams": set[str](),
    "top": set[str](),
    "cli": set[str](),
    "tools": set[str](),
}
FREE_INSIDE = {"dashboard"}
PURE_ROOMS = ("synapse/core", "synapse/terminal", "synapse/dialects", "synapse/fleet")
# import-linter sees packages only; these are the doors to the world inside packages that are otherwise harmless.
WORLDLY_MODULES = {"http.client", "http.server", "urllib.request"}
WORLDLY_CALLS = {"open", "print", "input", "breakpoint"}


def folders_in(parent: Path) -> set[str]:
    return {path.name for path in parent.iterdir() if path.is_dir() and path.name not in LEFT_BEHIND}


def imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def called_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def test_the_checkout_has_no_unlisted_folder() -> None:
    visible = {name for name in folders_in(ROOT) if not name.startswith(".")} - {"build", "dist", "htmlcov"}

    assert visible <= set(FOLDERS)


def test_the_package_has_exactly_the_rooms_of_the_map() -> None:
    assert folders_in(PACKAGE) == ROOMS.keys() | FREE_INSIDE


def test_no_room_has_an_unlisted_folder() -> None:
    unlisted = {room: folders_in(PACKAGE / room) - allowed for room, allowed in ROOMS.items()}

    assert {room: extra for room, extra in unlisted.items() if extra} == {}


def test_every_folder_with_code_is_a_package() -> None:
    folders = {path.parent for path in walk(PACKAGE) if path.suffix == ".py"}

    assert [shown(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_pure_rooms_have_no_hidden_door_to_the_world() -> None:
    doors = [
        f"{shown(path)}: {name}"
        for path in python_files(*PURE_ROOMS)
        for name in [*imported_names(parse(path)), *called_names(parse(path))]
        if name in WORLDLY_MODULES | WORLDLY_CALLS
    ]

    assert doors == []


def looked_up_in_metadata(tree: ast.Module) -> Iterator[str]:
    """The keys in `x.metadata["key"]` and `x.metadata.get("key")`."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Attribute(attr="metadata"), slice=ast.Constant(value=str(key))):
                yield key
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="metadata"), attr="get"),
                args=[ast.Constant(value=str(key)), *_],
            ):
                yield key
            case _:
                pass


def test_reply_state_is_read_from_the_fields_of_a_task() -> None:
    # `ttl` is read from the metadata of a request, before there is a task.
    keys = RESERVED_KEYS - {"ttl"}
    inside = [path for path in python_files("synapse") if "dialects" not in path.parts]

    found = [f"{shown(path)} {key}" for path in inside for key in looked_up_in_metadata(parse(path)) if key in keys]

    assert found == []
