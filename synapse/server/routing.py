"""Finds the route of a path, in a table that is compiled once from the dialects.

Paths without `{name}` are in one dictionary, by their raw bytes. All others are in a tree, segment by segment:

    tasks ─┬─ send                       POST
           ├─ {…}:cancel                 POST
           └─ {…} ─┬─                    GET
                   └─ cancel             POST

A verb after a colon is searched only where a route has one: ids may hold colons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from synapse.core.errors import MethodNotAllowed, RouteNotFound
from synapse.dialects.dialect import NO_PARAMS, AnyRoute, Dialect, StreamRoute

METHODS_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


class Endpoint:
    """A route, its dialect, and the names of its `{name}` segments."""

    __slots__ = ("dialect", "names", "route")

    def __init__(self, dialect: Dialect, route: AnyRoute) -> None:
        self.dialect = dialect
        self.route = route
        self.names = tuple([part[1:].partition("}")[0] for part in route.path.split("/") if part.startswith("{")])


class Match(NamedTuple):
    """The endpoints that serve a request, in the order of the dialects; more than one if dialects share the path."""

    endpoints: tuple[Endpoint, ...]
    values: tuple[str, ...]

    def params(self, endpoint: Endpoint) -> Mapping[str, str]:
        return dict(zip(endpoint.names, self.values, strict=True)) if self.values else NO_PARAMS


class RouteTable:
    """All routes of some dialects."""

    def __init__(self, dialects: Iterable[Dialect]) -> None:
        self._fixed: dict[bytes, _Methods] = {}
        self._tree = _Node()
        for dialect in dialects:
            for route in dialect.routes:
                endpoint = Endpoint(dialect, route)
                node = self._tree
                for segment in route.path.split("/")[1:]:
                    node = node.child(segment)
                node.methods[route.method] = (*node.methods.get(route.method, ()), endpoint)
                if not endpoint.names:
                    self._fixed[route.path.encode("ascii")] = node.methods

    def match(self, method: str, raw_path: bytes) -> Match:
        """Returns the endpoints of this request.

        Raises:
            RouteNotFound: nothing is served at the path.
            MethodNotAllowed: the path is served, but not with that method.
        """
        methods = self._fixed.get(raw_path)
        if methods is not None:
            return Match(methods.get(method) or _other_method(method, raw_path, methods), ())
        values: list[bytes] = []
        node: _Node | None = self._tree
        # One slash at the end is ignored: people and clients add it.
        for segment in raw_path.removesuffix(b"/").split(b"/")[1:]:
            if node is None:
                break
            inner = node.named.get(segment)
            if inner is None:
                inner, value = node.unnamed(segment)
                values.append(value)
            node = inner
        if node is None or not node.methods:
            raise _no_route(raw_path)
        endpoints = node.methods.get(method) or _other_method(method, raw_path, node.methods)
        return Match(endpoints, tuple([_decoded(value, raw_path) for value in values]))


_Methods = dict[str, tuple[Endpoint, ...]]


class _Node:
    __slots__ = ("any", "methods", "named", "verbs")

    def __init__(self) -> None:
        self.named: dict[bytes, _Node] = {}
        self.verbs: dict[bytes, _Node] = {}
        self.any: _Node | None = None
        self.methods: _Methods = {}

    def child(self, segment: str) -> _Node:
        """Returns the child for a segment of a route's path; creates it if it is missing."""
        if not segment.startswith("{"):
            return self.named.setdefault(segment.encode("ascii"), _Node())
        verb = segment.partition("}")[2]
        if verb:
            return self.verbs.setdefault(verb.encode("ascii"), _Node())
        if self.any is None:
            self.any = _Node()
        return self.any

    def unnamed(self, segment: bytes) -> tuple[_Node | None, bytes]:
        """Returns the child for a segment that is no fixed name, and the value of that segment."""
        if self.verbs:
            stem, colon, verb = segment.rpartition(b":")
            node = self.verbs.get(colon + verb)
            if node is not None:
                return node, stem
        return self.any, segment


def _other_method(method: str, raw_path: bytes, methods: _Methods) -> tuple[Endpoint, ...]:
    """Returns the endpoints of GET for HEAD, whose body the server omits; streams take no HEAD, as they may never end.

    Raises MethodNotAllowed.
    """
    if method == "HEAD":
        endpoints = tuple([end for end in methods.get("GET", ()) if not isinstance(end.route, StreamRoute)])
        if endpoints:
            return endpoints
    raise MethodNotAllowed(method, _shown(raw_path), sorted(methods))


def _decoded(segment: bytes, raw_path: bytes) -> str:
    """Returns the text of a segment. It is decoded after routing, so an escaped slash stays inside its segment."""
    try:
        text = (unquote_to_bytes(segment) if b"%" in segment else segment).decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text:
        raise _no_route(raw_path)
    return text


def _no_route(raw_path: bytes) -> RouteNotFound:
    hint = "`GET /docs` of a gateway lists what it serves; docs/reference/http.md lists the paths of an agent"
    return RouteNotFound(f"nothing is served at {_shown(raw_path)}", hint=hint)


def _shown(raw_path: bytes) -> str:
    return raw_path[:200].decode("ascii", "replace")
