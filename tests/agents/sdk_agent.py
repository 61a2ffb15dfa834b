"""Agents on the official SDK's own server: `python -m tests.agents.sdk_agent` prints a port for each.

Over JSON-RPC, over REST, and over JSON-RPC without streams. Each asks when it is told to `ask`, works until it is
canceled at `wait`, and says anything else back, in two pieces.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, Part, Task, TaskState, TaskStatus
from starlette.applications import Starlette
from typing_extensions import override


class Talking(AgentExecutor):
    """Does what the text says."""

    @override
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task_id, context_id = context.task_id or "", context.context_id or ""
        text, known = context.get_user_input(), context.current_task
        if known is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            message = [context.message] if context.message else []
            await event_queue.enqueue_event(Task(id=task_id, context_id=context_id, status=status, history=message))
        else:
            context_id = known.context_id
        updater = TaskUpdater(event_queue, task_id, context_id)
        await updater.start_work()
        if text == "ask":
            await updater.requires_input(updater.new_agent_message([Part(text="which one?")]))
            return
        if text == "wait":
            await asyncio.Event().wait()
        await updater.add_artifact([Part(text="you said ")], artifact_id="answer")
        await updater.add_artifact([Part(text=text)], artifact_id="answer", append=True, last_chunk=True)
        await updater.complete()

    @override
    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


async def serve(listener: socket.socket, binding: str, *, streaming: bool) -> None:
    port = listener.getsockname()[1]
    modes = ["text/plain"]
    card = AgentCard(
        name=f"sdk {binding}",
        description="says it back",
        version="1",
        supported_interfaces=[
            AgentInterface(url=f"http://127.0.0.1:{port}/", protocol_binding=binding, protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=modes,
        default_output_modes=modes,
    )
    handler = DefaultRequestHandler(agent_executor=Talking(), task_store=InMemoryTaskStore(), agent_card=card)
    routes = create_jsonrpc_routes(handler, "/") if binding == "JSONRPC" else create_rest_routes(handler)
    app = Starlette(routes=[*create_agent_card_routes(card), *routes])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    await server.serve(sockets=[listener])


async def main() -> None:
    kinds = [("JSONRPC", True), ("HTTP+JSON", True), ("JSONRPC", False)]
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in kinds]
    sys.stdout.write(" ".join(str(listener.getsockname()[1]) for listener in listeners) + "\n")
    sys.stdout.flush()
    await asyncio.gather(
        *(serve(one, binding, streaming=streams) for one, (binding, streams) in zip(listeners, kinds, strict=True))
    )


if __name__ == "__main__":
    asyncio.run(main())
