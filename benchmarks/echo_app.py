"""The peer: a bare Starlette application that answers JSON with JSON, on uvicorn with the settings of our hosts.

Run as `python -m benchmarks.echo_app SOCKET`.
"""

from __future__ import annotations

import socket
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def echo(request: Request) -> JSONResponse:
    """Give back what was sent."""
    return JSONResponse(await request.json())


async def show(request: Request) -> JSONResponse:
    """Give back what the path names."""
    return JSONResponse({"id": request.path_params["id"]})


def main(path: str) -> None:
    app = Starlette(routes=[Route("/tasks/send", echo, methods=["POST"]), Route("/tasks/{id}", show)])
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
    main(sys.argv[1])
