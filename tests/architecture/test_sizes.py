"""Rooms are small: one page to read at three in the morning."""

from __future__ import annotations

import ast

from tests.architecture.source_tree import parse, python_files, shown

MODULE_LINES = 400
FUNCTION_LINES = 40

Function = ast.FunctionDef | ast.AsyncFunctionDef


def length_without_docstring(function: Function) -> int:
    lines = last_line(function) - function.lineno + 1
    match function.body[0]:
        case ast.Expr(value=ast.Constant(value=str())) as docstring:
            return lines - (last_line(docstring) - docstring.lineno + 1)
        case _:
            return lines


def last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def test_a_docstring_does_not_count_as_length() -> None:
    source = 'def f():\n    """One.\n\n    Two.\n    """\n    return 1\n'
    function = ast.parse(source).body[0]

    assert isinstance(function, ast.FunctionDef)
    assert length_without_docstring(function) == 2


def test_no_module_is_longer_than_a_room_should_be() -> None:
    lengths = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}

    assert {name: lines for name, lines in lengths.items() if lines > MODULE_LINES} == {}


def test_no_function_is_longer_than_one_page() -> None:
    long = [
        f"{shown(path)}:{node.lineno} {node.name} has {length_without_docstring(node)} lines"
        for path in python_files()
        for node in ast.walk(parse(path))
        if isinstance(node, Function) and length_without_docstring(node) > FUNCTION_LINES
    ]

    assert long == []
