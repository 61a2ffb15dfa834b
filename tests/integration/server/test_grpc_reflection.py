"""gRPC reflection describes the services to admitted callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import grpc.aio  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2 as words  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # untyped

from synapse.core.caller import Caller
from synapse.core.errors import CredentialsRefused, InvalidRequest, WaitTimedOut
from synapse.server.grpc_methods import SERVICE_0_3, SERVICE_1_0
from synapse.server.grpc_server import REFLECTION_METHOD, REFLECTION_SERVICES, Description, GrpcHeaders
from tests.integration.server.test_grpc_server import PATIENCE, OneTask, serving

pytestmark = pytest.mark.integration

QUESTION: Any = words.ServerReflectionRequest


def with_a_key(headers: GrpcHeaders, _path: str, _peer: str) -> Caller | Awaitable[Caller]:
    if (b"x-api-key", b"right") not in headers:
        raise CredentialsRefused("this needs credentials", challenge="Bearer")
    return Caller(name="somebody")


async def asked(target: str, service: str, *questions: Any, key: str = "right") -> list[Any]:
    new_channel: Any = grpc.aio.insecure_channel
    async with new_channel(target) as channel:
        method: Any = channel.stream_stream(f"/{service}/{REFLECTION_METHOD}")
        call: Any = method(iter([one.SerializeToString() for one in questions]), metadata=[("x-api-key", key)])
        return [words.ServerReflectionResponse.FromString(answer) async for answer in call]


@pytest.mark.parametrize("service", REFLECTION_SERVICES)
async def test_both_versions_of_a2a_are_listed_and_described(service: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async with serving(OneTask(), admit=with_a_key) as (_, target):
            names = [QUESTION(file_containing_symbol=name) for name in (SERVICE_1_0, SERVICE_0_3, "no.such.Thing")]
            listed, current, former, missing = await asked(target, service, QUESTION(list_services=""), *names)

        assert {one.name for one in listed.list_services_response.service} >= {SERVICE_1_0, SERVICE_0_3}
        for answer, name in ((current, SERVICE_1_0), (former, SERVICE_0_3)):
            file = FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])
            assert f"{file.package}.{file.service[0].name}" == name
        assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


@pytest.mark.parametrize("service", REFLECTION_SERVICES)
async def test_a_caller_that_is_not_admitted_gets_no_description(service: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async with serving(OneTask(), admit=with_a_key) as (_, target):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await asked(target, service, QUESTION(list_services=""), key="wrong")
        failure: Any = refused.value
        assert failure.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_invalid_and_overlong_reflection_streams_are_refused() -> None:
    async def one(question: bytes) -> AsyncGenerator[bytes, None]:
        yield question

    async def silence() -> AsyncGenerator[bytes, None]:
        await asyncio.Event().wait()
        yield b""

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(InvalidRequest):
            await anext(Description([SERVICE_1_0]).answers(one(b"\xff\xff"), None))
        with pytest.raises(WaitTimedOut):
            await anext(Description([SERVICE_1_0], longest_seconds=0.01).answers(silence(), None))
