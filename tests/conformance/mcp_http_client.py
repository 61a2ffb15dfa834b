"""The tools of a gateway, used by the official MCP SDK for Python, unmodified, in an environment of its own.

    python mcp_http_client.py URL KEY legacy|modern

It prints what it saw as JSON. Version 1 of the SDK speaks the older protocol only. The SDK is loaded by name, because
it is not installed here.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

http: Any = importlib.import_module("mcp.client.streamable_http")
mcp: Any = importlib.import_module("mcp")
is_second = hasattr(mcp, "Client")


@asynccontextmanager
async def connected(url: str, key: str, mode: str) -> AsyncGenerator[tuple[Any, dict[str, Any]]]:
    """Connects; yields the client, and what the server says of itself."""
    bearer = {"Authorization": f"Bearer {key}"}
    if is_second:
        utils: Any = importlib.import_module("mcp.shared._httpx_utils")
        transport = http.streamable_http_client(url, http_client=utils.create_mcp_http_client(headers=bearer))
        async with mcp.Client(transport, mode="auto" if mode == "modern" else "legacy") as client:
            yield client, {"protocol": client.protocol_version, "instructions": client.instructions}
        return
    async with (
        http.streamablehttp_client(url, headers=bearer) as (reading, writing, _session_id),
        mcp.ClientSession(reading, writing) as session,
    ):
        begun = await session.initialize()
        yield session, {"protocol": begun.protocolVersion, "instructions": begun.instructions}


def shown(result: Any) -> dict[str, Any]:
    is_error = result.is_error if is_second else result.isError
    return {"error": bool(is_error), "blocks": [block.text for block in result.content]}


async def conversation(url: str, key: str, mode: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    async with connected(url, key, mode) as (client, server):
        seen |= server
        seen["tools"] = [tool.name for tool in (await client.list_tools()).tools]

        async def call(name: str, progress: Any = None, **arguments: object) -> dict[str, Any]:
            return shown(await client.call_tool(name, arguments, progress_callback=progress))

        seen["agents"] = await call("agents")
        seen["sent"] = await call("send", to="tck", text="only told")
        seen["answered"] = await call("send", to="tck", text="asked", wait="answer")
        told: list[float] = []

        async def progress(done: float, _total: float | None, _message: str | None) -> None:
            told.append(done)

        seen["slow"] = await call("send", progress, to="tck", text="slow one", wait="answer")
        seen["progress"] = told
        seen["asks"] = await call("send", to="tck", text="ask me", wait="answer")
        seen["late"] = await call("send", to="tck", text="never", wait="answer", timeout=1)
        task = seen["late"]["blocks"][0].split()[1].strip(":,")
        seen["status"] = await call("status", of=task)
        seen["canceled"] = await call("cancel", task=task)
        seen["wrong"] = await call("send", to="tck", text=7)
        seen["nobody"] = await call("send", to="nobody", text="hello")
        seen["unknown"] = await refused(call("reply", text="no"))
    seen["no key"] = await refused(stranger(url, mode))
    return seen


async def stranger(url: str, mode: str) -> None:
    async with connected(url, "wrong", mode):
        pass


async def refused(act: Any) -> str:
    """Returns the error of an act that must fail; SDKs wrap it in groups."""
    try:
        await act
    except BaseException as raised:  # noqa: BLE001 - which class it is depends on the version
        error: Any = raised
        while hasattr(error, "exceptions"):
            error = error.exceptions[0]
        return f"{type(error).__name__}: {error}"
    return ""


sys.stdout.write(json.dumps(asyncio.run(conversation(*sys.argv[1:]))))
