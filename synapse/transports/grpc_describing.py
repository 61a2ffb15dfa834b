"""What a gRPC server says of itself to clients that know it by name only (reflection), such as grpcurl.

The messages of `v1` are those of `v1alpha` under another name, so both are answered by the same servicer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any, Final

from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import (  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # untyped
    reflection,
    reflection_pb2,
)

from synapse.core.errors import InvalidRequest, WaitTimedOut

SERVICES: Final = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)
METHOD: Final = "ServerReflectionInfo"
LONGEST_SECONDS: Final = 30.0
"""A client asks its few questions at once; one that stays for more has to come again."""


class Description:
    """Answers what the named services look like. What is described is public: the protobuf of A2A itself."""

    def __init__(self, names: Iterable[str], *, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._servicer: Any = reflection.aio.ReflectionServicer([*names, reflection.SERVICE_NAME])
        self._longest_seconds = longest_seconds

    async def answers(self, asked: AsyncIterator[bytes], context: Any) -> AsyncGenerator[bytes, None]:
        """Raises InvalidRequest for what is no question, and WaitTimedOut for a client that stays too long."""
        async with aclosing(self._servicer.ServerReflectionInfo(self._questions(asked), context)) as answers:
            async for answer in answers:
                yield answer.SerializeToString()

    async def _questions(self, asked: AsyncIterator[bytes]) -> AsyncGenerator[Any, None]:
        end = asyncio.get_running_loop().time() + self._longest_seconds
        while True:
            try:
                async with asyncio.timeout_at(end):
                    question = await anext(asked)
                read = reflection_pb2.ServerReflectionRequest.FromString(question)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise WaitTimedOut(f"nothing more is described after {self._longest_seconds:g} s") from error
            except DecodeError as error:
                raise InvalidRequest("this is no ServerReflectionRequest") from error
            yield read
