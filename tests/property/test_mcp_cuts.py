"""The MCP server's replies do not depend on how the bytes of its input were cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from synapse.core.json_text import decode, encode
from synapse.mcp.server import INVALID_REQUEST, PARSE_ERROR, Server, Session, refuse
from synapse.mcp.stdio import LineDecoder
from synapse.mcp.tools import AGENT_TOOLS

MOST = 200
LINES = st.sampled_from(
    [
        b"",
        b"   ",
        b"garbage",
        b"\xff\xfe",
        b"null",
        b"x" * (MOST + 1),
        b" " * (MOST * 2),
        b"[]",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":"\\u00e9","method":"ping"}\r',
        '{"jsonrpc":"2.0","id":"é🙂","method":"ping"}'.encode(),
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"send","arguments":{}}}',
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'[{"jsonrpc":"2.0","id":3,"method":"ping"},5]',
    ]
)


def replies(pieces: list[bytes]) -> list[str]:
    decoder, session, server = LineDecoder(MOST), Session(), Server(AGENT_TOOLS, "", "1")
    found: list[str] = []
    for piece in pieces:
        for line in decoder.receive(piece):
            if line is None:
                exchange = refuse(INVALID_REQUEST, "too long")
            else:
                try:
                    exchange = server.receive(decode(line.decode("utf-8")), session)
                except ValueError:
                    exchange = refuse(PARSE_ERROR, "not JSON")
            if exchange.reply is not None:
                found.append(encode(exchange.reply))
    return found


@given(st.lists(LINES, max_size=8), st.lists(st.integers(0, 2000), max_size=12))
def test_any_cut_gives_the_same_replies(lines: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    pieces = [whole[begin:end] for begin, end in pairwise(places)]

    assert replies(pieces) == replies([whole])
    assert replies([whole[index : index + 1] for index in range(len(whole))]) == replies([whole])
