"""A service whose requests are counted, for what does not come over HTTP: gRPC calls, messages on a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any, TypeGuard

from synapse.core.caller import Caller
from synapse.core.errors import InternalFailure, SynapseError
from synapse.core.requests import Request, ToAgent
from synapse.transports.exchange import CALLER_LEFT, Exchange, Observe
from synapse.transports.http import Service


class ObservedService:
    """Does what `service` does. An answer that is waited for counts when it has come, a stream when it begins."""

    def __init__(self, service: Service, dialect: str, observe: Observe) -> None:
        self._service = service
        self._dialect = dialect
        self._observe = observe

    async def handle(self, request: Request, caller: Caller) -> Any:
        """Raises what the service raises."""
        begun = perf_counter()
        name = type(request.request if isinstance(request, ToAgent) else request).__name__

        def told(error: str = "", *, is_stream: bool = False) -> None:
            self._observe(Exchange("CALL", name, self._dialect, perf_counter() - begun, error, is_stream))

        try:
            result: Any = await self._service.handle(request, caller)
        except BaseException as error:
            told(_code(error))
            raise
        if _is_coming(result):
            result.add_done_callback(lambda done: told(_end(done)))
        else:
            told(is_stream=isinstance(result, AsyncIterator))
        return result


def _is_coming(result: object) -> TypeGuard[asyncio.Future[Any]]:
    return isinstance(result, asyncio.Future)


def _end(done: asyncio.Future[Any]) -> str:
    if done.cancelled():
        return CALLER_LEFT
    error = done.exception()
    return "" if error is None else _code(error)


def _code(error: BaseException) -> str:
    if isinstance(error, SynapseError):
        return error.code
    return CALLER_LEFT if isinstance(error, asyncio.CancelledError) else InternalFailure.code
