"""The OpenAPI document as a page for people. It loads nothing from anywhere, and runs no script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from typing import Any, Final, cast

Wire = dict[str, Any]

_QUOTED: Final = re.compile("`([^`]+)`")

_STYLE: Final = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c1c1e;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #d1d1d6}
details{border-bottom:1px solid #e5e5ea;padding:.4rem 0}summary{cursor:pointer}
code{font-family:ui-monospace,monospace}b{display:inline-block;min-width:4.5rem}
pre{background:#f2f2f7;padding:.75rem;overflow:auto}
@media(prefers-color-scheme:dark){body{color:#f2f2f7;background:#1c1c1e}pre{background:#2c2c2e}}"""


def openapi_page(document: Wire) -> bytes:
    """The page, whole."""
    info = document["info"]
    sections = "".join(_section(document, tag) for tag in document["tags"])
    head = f'<meta charset="utf-8"><title>{escape(info["title"])}</title><style>{_STYLE}</style>'
    start = f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{_prose(info['description'])}</p>"
    link = '<p><a href="openapi.json">openapi.json</a></p>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{start}{link}{sections}</body></html>'.encode()


def _section(document: Wire, tag: Wire) -> str:
    shown = "".join(
        _operation(document, method, path, operation)
        for method, path, operation in _operations(document)
        if tag["name"] in operation["tags"]
    )
    return f"<h2>{escape(tag['name'])}</h2><p>{_prose(tag['description'])}</p>{shown}"


def _operations(document: Wire) -> Iterator[tuple[str, str, Wire]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _operation(document: Wire, method: str, path: str, operation: Wire) -> str:
    head = f"<summary><b>{method}</b> <code>{escape(path)}</code> {_prose(operation['summary'])}</summary>"
    given = {"parameters": operation["parameters"]}
    if body := operation.get("requestBody"):
        given["body"] = _resolved(body["content"]["application/json"]["schema"], document["components"]["schemas"])
    return f"<details>{head}<pre>{escape(json.dumps(given, indent=2, ensure_ascii=False))}</pre></details>"


def _prose(text: str) -> str:
    """What is quoted with backticks in the document stands out on the page."""
    return _QUOTED.sub(r"<code>\1</code>", escape(text))


def _resolved(schema: object, schemas: Wire) -> Any:
    """A schema with what it refers to written in place: no shape of ours holds itself."""
    if isinstance(schema, list):
        return [_resolved(one, schemas) for one in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("Wire", schema)
    if reference := fields.get("$ref"):
        return _resolved(schemas[reference.rpartition("/")[2]], schemas)
    return {key: _resolved(value, schemas) for key, value in fields.items()}
