"""The peer: the official SDK's server with its own request handler, on uvicorn with the settings of our hosts.

Run as `python -m benchmarks.sdk_app SOCKET [DATABASE]`; without a database its tasks are in memory.
"""

from __future__ import annotations

import os
import socket
import sys

# The SDK's spans cost a quarter of its time, and nobody reads them here: this is the SDK at its best.
os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, Part, Task, TaskState, TaskStatus
from starlette.applications import Starlette
from typing_extensions import override


class Answering(AgentExecutor):
    """Answers with what it was sent."""

    @override
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task_id, context_id = context.task_id or "", context.context_id or ""
        status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        message = [context.message] if context.message else []
        await event_queue.enqueue_event(Task(id=task_id, context_id=context_id, status=status, history=message))
        updater = TaskUpdater(event_queue, task_id, context_id)
        await updater.add_artifact([Part(text=context.get_user_input())])
        await updater.complete()

    @override
    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError("nothing here lasts long enough")


def card() -> AgentCard:
    interfaces = [
        AgentInterface(url="http://localhost/", protocol_binding=binding, protocol_version="1.0")
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    capabilities = AgentCapabilities(streaming=True)
    modes = ["text/plain"]
    return AgentCard(
        name="peer",
        description="answers",
        version="1",
        supported_interfaces=interfaces,
        capabilities=capabilities,
        default_input_modes=modes,
        default_output_modes=modes,
    )


def store(database: str) -> TaskStore:
    if not database:
        return InMemoryTaskStore()
    from a2a.server.tasks import DatabaseTaskStore  # noqa: PLC0415 - needs SQLAlchemy, which only this peer does
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - the same

    return DatabaseTaskStore(create_async_engine(f"sqlite+aiosqlite:///{database}"))


def main(path: str, database: str = "") -> None:
    handler = DefaultRequestHandler(agent_executor=Answering(), task_store=store(database), agent_card=card())
    app = Starlette(routes=[*create_jsonrpc_routes(handler, "/"), *create_rest_routes(handler)])
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
