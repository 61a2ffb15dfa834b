"""The tools of a gateway over MCP: calls for one caller alone, waits that end, refusals in the protocol's form."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest

from synapse.core.caller import Caller
from synapse.core.driver import QuestionRaised, Refused, Submitted, TurnEvent
from synapse.core.errors import (
    AgentExited,
    CredentialsRefused,
    InvalidRequest,
    MachineAway,
    MethodNotAllowed,
    QueueFull,
    RateLimited,
    StoreFailed,
    SynapseError,
    TooManyStreams,
)
from synapse.core.question import Option, Question, QuestionKind
from synapse.core.requests import PendingTask, Request, SubscribeTask
from synapse.core.store import TaskQuery
from synapse.core.task import Task, TaskId, TaskState
from synapse.dialects.dialect import EventAnswer, LateAnswer, ServiceRoute, WireAnswer, WireRequest
from synapse.gateway.mcp import encode_error, mcp_dialect, shown
from synapse.gateway.remote import KEEP_HINT
from synapse.gateway.service import StreamLimit
from synapse.mcp.tools import refusal
from tests.fakes.driver import FakeDriver
from tests.fakes.gateway_world import BOUND, LAPTOP, PHONE, World, everything, questions, world
from tests.unit.dialects.synapse.samples import a_task

R = TypeVar("R")

JSON = "application/json"
BOTH = "application/json, text/event-stream"
NEW = "2026-07-28"


class Client:
    """Posts messages to the endpoint of a world. It remembers the waits, and lets them fail if the test says so."""

    def __init__(self, gateway: World, *, most_wait: float = 30, progress_every: float = 5) -> None:
        self.gateway = gateway
        self.counted: list[Caller] = []
        self.waits: list[asyncio.Future[Task]] = []
        self.failure: SynapseError | None = None
        self.streams = StreamLimit(2)
        dialect = mcp_dialect(
            gateway.directory.name_of,
            self.counted.append,
            self.streams.acquire,
            most_wait=most_wait,
            progress_every=progress_every,
        )
        (route,) = dialect.routes
        assert isinstance(route, ServiceRoute)
        self._serve = route.serve

    async def post(self, body: object, caller: Caller = LAPTOP, accept: str = JSON, **headers: Any) -> Any:
        named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        if accept:
            named.append((b"accept", accept.encode()))
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        wire = WireRequest("POST", "/mcp", headers=named, body=content)
        async with asyncio.timeout(BOUND):
            return await self._serve(wire, self, caller)

    async def handle(self, request: Request[R], caller: Caller) -> R:
        result: Any = await self.gateway.service.handle(request, caller)
        if isinstance(result, PendingTask) and not result.is_settled:
            self.waits.append(asyncio.ensure_future(result.settled()))
            if self.failure is not None:
                self.waits[-1].cancel()
                self.waits[-1] = asyncio.get_running_loop().create_future()
                self.waits[-1].set_exception(self.failure)
            result = PendingTask(result.now, self.waits[-1])
        return cast("R", result)

    async def call(self, tool: str, /, caller: Caller = LAPTOP, accept: str = JSON, **arguments: Any) -> Any:
        return await self.post(tool_call(tool, arguments), caller, accept)

    async def said(self, tool: str, /, caller: Caller = LAPTOP, **arguments: Any) -> list[str]:
        """Returns the blocks of a result that is no error."""
        answer = await self.call(tool, caller, **arguments)
        assert isinstance(answer, WireAnswer)
        assert (answer.status, answer.error) == (200, "")
        result = json.loads(answer.body)["result"]
        assert not result["isError"], result
        return blocks(result)

    async def failed(self, tool: str, /, caller: Caller = LAPTOP, **arguments: Any) -> tuple[str, str]:
        """Returns the text of a tool's error, and its code for metrics."""
        answer = await self.call(tool, caller, **arguments)
        assert isinstance(answer, WireAnswer)
        result = json.loads(answer.body)["result"]
        assert (answer.status, result["isError"]) == (200, True)
        (text,) = blocks(result)
        return text, answer.error


def tool_call(tool: str, arguments: object, number: int = 7, token: object = None) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def blocks(result: Any) -> list[str]:
    assert {block["type"] for block in result["content"]} == {"text"}
    return [block["text"] for block in result["content"]]


def asking(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"to": "ada", "text": text, "wait": "answer", **more}


def held() -> FakeDriver:
    """An agent that answers when the test says so."""
    driver = FakeDriver()
    driver.go_on.clear()
    return driver


def id_in(text: str) -> str:
    return text.split()[1].strip(":,")


async def events_of(answer: object) -> list[Any]:
    assert isinstance(answer, EventAnswer)
    async with asyncio.timeout(BOUND):
        return [json.loads(event.data) async for event in answer.events]


async def tasks_of(gateway: World) -> tuple[Task, ...]:
    return (await gateway.store.list(TaskQuery())).tasks


async def ended(gateway: World, task_id: str) -> Task:
    """Returns the task once it has ended."""
    return (await everything(await gateway.ask(SubscribeTask(task_id=task_id))))[-1].task


# --- the tools -------------------------------------------------------------------------------------------------


async def test_agents_lists_those_that_the_caller_may_use() -> None:
    async with world() as gateway:
        client = Client(gateway)

        assert await client.said("agents") == ["ada (codex): ready\nsynapse-codex-8121 (codex): ready"]
        assert await client.said("agents", replace(LAPTOP, agents=frozenset({"ada"}))) == ["ada (codex): ready"]
        assert await client.said("agents", replace(LAPTOP, agents=frozenset({"x"}))) == ["no agent is running"]


async def test_a_message_is_sent_for_the_caller_and_its_whole_task_id_told() -> None:
    driver = held()
    async with world(driver) as gateway:
        (text,) = await Client(gateway).said("send", to="ada", text="hello")

        task = await gateway.store.load(TaskId(id_in(text)))
        assert text == f"task {task.id}, sent to ada (queued). Nothing more to do."
        assert (task.scope, task.dialect, task.sender_name) == ("key:laptop", "mcp", "key.laptop")
        assert (task.message.text, task.reply_to) == ("hello", None)
        await driver.taken.wait()
        assert [turn.text for turn in driver.turns] == [f"[A2A:{task.short_id}:key.laptop] hello"]


async def test_a_key_sends_a_message_once_in_the_scope_of_its_caller() -> None:
    async with world() as gateway:
        client = Client(gateway)
        first = id_in((await client.said("send", to="ada", text="hi", idempotency_key="k"))[0])

        assert id_in((await client.said("send", to="ada", text="hi", idempotency_key="k"))[0]) == first
        assert id_in((await client.said("send", PHONE, to="ada", text="hi", idempotency_key="k"))[0]) != first
        text, code = await client.failed("send", to="ada", text="ho", idempotency_key="k")
        assert (code, "idempotency_key" in text) == ("message_id_reused", True)


async def test_an_answer_is_a_block_of_its_own_after_who_gave_it() -> None:
    driver = FakeDriver()
    async with world(driver) as gateway:
        answer = await Client(gateway).call("send", **asking())
        assert isinstance(answer, LateAnswer)
        result = json.loads((await answer.answer).body)["result"]

        head, text = blocks(result)
        assert text == "echo: hello"
        assert "cannot grant you permission" in head
        (turn,) = driver.turns
        assert turn.text == f"[A2A:{turn.task_id[:8]}:key.laptop:R] hello", "the agent is told that somebody waits"
        assert turn.task_id == id_in(head)


async def test_a_failed_task_is_an_error_of_the_tool() -> None:
    plot: list[TurnEvent] = [Submitted("script", "taken"), Refused("not today")]
    async with world(FakeDriver(lambda _: plot)) as gateway:
        answer = await Client(gateway).call("send", **asking())
        result = json.loads((await answer.answer).body)["result"]

        assert result["isError"] is True
        assert "not today" in "".join(blocks(result))


async def test_an_agent_that_asks_back_is_told_as_such() -> None:
    async with world(questions()) as gateway:
        answer = await Client(gateway).call("send", **asking())
        head, text = blocks(json.loads((await answer.answer).body)["result"])

        assert text == "which?"
        assert "ada asks before it goes on. To answer, `cancel` the task" in head


async def test_a_question_for_a_person_says_that_only_a_person_can_answer() -> None:
    options = (Option(key="1", label="Yes"), Option(key="2", label="No"))
    question = Question(id="q", kind=QuestionKind.PERMISSION, title="Run it?", options=options)
    plot: list[TurnEvent] = [Submitted("script", "taken"), QuestionRaised(question)]
    async with world(FakeDriver(lambda _: plot)) as gateway:
        answer = await Client(gateway).call("send", **asking())
        head, text = blocks(json.loads((await answer.answer).body)["result"])

        assert "Only a person there can answer" in head
        assert "Run it?" in text


async def test_status_shows_a_task_its_steps_and_its_answer() -> None:
    async with world() as gateway:
        client = Client(gateway)
        answer = await client.call("send", **asking())
        await answer.answer
        (task,) = await tasks_of(gateway)
        head, text = await client.said("status", of=task.id)

        assert text == "echo: hello"
        assert head.startswith(f"task {task.id}: completed at ada, from key.laptop\nmessage: hello\nqueued")
        assert "answered" in head


async def test_status_shows_an_agent_and_names_what_is_neither() -> None:
    async with world() as gateway:
        client = Client(gateway)

        assert await client.said("status", of="ada") == ["ada (codex): ready"]
        text, _ = await client.failed("status", of="nothing")
        assert text.startswith("there is no task and no agent 'nothing'")


async def test_cancel_ends_the_task() -> None:
    async with world(held()) as gateway:
        client = Client(gateway)
        task = id_in((await client.said("send", to="ada", text="hi"))[0])

        assert await client.said("cancel", task=task) == [f"task {task} at ada is canceled."]
        _, code = await client.failed("cancel", task=task)
        assert code == "task_not_cancelable"


async def test_the_task_of_another_caller_is_missing() -> None:
    async with world(held()) as gateway:
        client = Client(gateway)
        task = id_in((await client.said("send", to="ada", text="secret"))[0])

        text, _ = await client.failed("status", PHONE, of=task)
        missing, _ = await client.failed("status", PHONE, of="0" * 36)
        assert text == missing.replace("0" * 36, task), "nothing tells that it exists"
        assert (await client.failed("cancel", PHONE, task=task))[1] == "task_not_found"
        assert (await gateway.store.load(TaskId(task))).state is not TaskState.CANCELED


async def test_a_short_id_is_no_id_here() -> None:
    async with world(held()) as gateway:
        client = Client(gateway)
        task = id_in((await client.said("send", to="ada", text="hi"))[0])

        assert "whole id" in (await client.failed("status", of=task[:8]))[0]


@pytest.mark.parametrize(
    ("tool", "arguments", "action"),
    [
        ("agents", {}, "send"),
        ("send", {"to": "ada", "text": "hi"}, "read"),
        ("send", {"to": "ada", "text": "hi", "wait": "answer"}, "read"),
        ("status", {"of": "ada"}, "send"),
        ("cancel", {"task": "x"}, "send"),
    ],
)
async def test_credentials_allow_what_they_allow_everywhere(tool: str, arguments: Any, action: str) -> None:
    async with world() as gateway:
        text, code = await Client(gateway).failed(tool, replace(LAPTOP, actions=frozenset({action})), **arguments)

        assert (code, "do not allow" in text) == ("forbidden", True)
        assert not await tasks_of(gateway)


async def test_an_agent_that_the_caller_may_not_use_is_missing() -> None:
    async with world() as gateway:
        only_bob = replace(LAPTOP, agents=frozenset({"synapse-codex-8121"}))

        assert (await Client(gateway).failed("send", only_bob, to="ada", text="hi"))[1] == "agent_not_found"


async def test_what_only_people_at_the_machine_should_see_is_not_shown() -> None:
    async with world() as gateway:
        whole = await ended(gateway, (await gateway.sent()).id)
    assert "the prompt was cleared" in [receipt.evidence for receipt in whole.receipts]

    wire = shown(replace(whole, attention="held: run `synapse resolve`"))
    assert {receipt["evidence"] for receipt in wire["metadata"]["receipts"]} == {""}
    assert wire["metadata"]["attention"] == "a person at the agent's machine has to decide about it"
    assert "attention" not in shown(a_task())["metadata"]


# --- waiting ---------------------------------------------------------------------------------------------------


async def test_a_client_of_events_hears_of_progress_until_the_answer() -> None:
    driver = held()
    async with world(driver) as gateway:
        body = tool_call("send", asking(), token="t")
        answer = await Client(gateway, progress_every=0.01).post(body, accept=BOTH)
        assert isinstance(answer, EventAnswer)
        first, second = json.loads((await anext(answer.events)).data), json.loads((await anext(answer.events)).data)
        driver.go_on.set()
        *_, last = await events_of(answer)

        assert first == {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": "t", "progress": 1, "message": "waiting for ada"},
        }
        assert second["params"]["progress"] == 2
        assert last["id"] == 7
        assert blocks(last["result"])[1] == "echo: hello"


async def test_without_a_token_there_is_no_progress() -> None:
    driver = held()
    async with world(driver) as gateway:
        answer = await Client(gateway, progress_every=0.01).call("send", accept=BOTH, **asking())
        reading = asyncio.ensure_future(events_of(answer))
        await driver.taken.wait()
        assert not (await asyncio.wait({reading}, timeout=0.05))[0]
        driver.go_on.set()

        assert [event["id"] for event in await reading] == [7]


@pytest.mark.parametrize("accept", [JSON, BOTH])
@pytest.mark.parametrize(("most", "limit"), [(0.05, 3600), (30, 0.05)])
async def test_a_wait_ends_at_the_shorter_limit_with_the_task_that_goes_on(
    accept: str, most: float, limit: float
) -> None:
    driver = held()
    async with world(driver) as gateway:
        client = Client(gateway, most_wait=most)
        answer = await client.call("send", accept=accept, **asking(timeout=limit))
        if isinstance(answer, EventAnswer):
            (reply,) = await events_of(answer)
        else:
            reply = json.loads((await answer.answer).body)
        (text,) = blocks(reply["result"])

        assert "no answer from ada yet. The task goes on; call `status` with this id later." in text
        assert not reply["result"]["isError"]
        driver.go_on.set()
        task = await ended(gateway, id_in(text))
        assert task.state is TaskState.COMPLETED


async def test_a_client_that_leaves_ends_the_wait_and_not_the_task() -> None:
    driver = held()
    async with world(driver) as gateway:
        client = Client(gateway, progress_every=0.01)
        late = await client.call("send", **asking("one"))
        begun = await client.post(tool_call("send", asking("two"), token=1), accept=BOTH)
        fresh = await client.call("send", accept=BOTH, **asking("three"))
        unstarted = await client.call("send", **asking("four"))
        unstarted.answer.cancel()
        assert len(client.waits) == 4
        late.answer.cancel()
        await anext(begun.events)
        await begun.events.aclose()
        await fresh.events.aclose()
        await asyncio.gather(late.answer, unstarted.answer, return_exceptions=True)
        await asyncio.gather(*client.waits, return_exceptions=True)

        assert all(wait.cancelled() for wait in client.waits)
        driver.go_on.set()
        for task in await tasks_of(gateway):
            assert (await ended(gateway, task.id)).state is TaskState.COMPLETED


async def test_a_stream_counts_as_one_of_its_caller_and_is_refused_before_its_message_is_sent() -> None:
    driver = held()
    async with world(driver) as gateway:
        client = Client(gateway)
        one, other = [await client.call("send", accept=BOTH, **asking(text)) for text in ("one", "two")]
        with pytest.raises(TooManyStreams):
            await client.call("send", accept=BOTH, **asking("three"))
        await (await client.call("send", PHONE, BOTH, **asking("four"))).events.aclose()
        assert {task.message.text for task in await tasks_of(gateway)} == {"one", "two", "four"}
        assert await client.said("agents"), "a call that does not wait takes no stream"
        await one.events.aclose()
        driver.go_on.set()
        await events_of(other)
        await other.events.aclose()

        for _ in range(3):
            assert isinstance(await client.call("send", accept=BOTH, to="nobody", text="hi", wait="answer"), WireAnswer)
        for _ in range(2):
            client.streams.acquire(LAPTOP)


async def test_a_gateway_that_ends_names_the_task() -> None:
    async with world(held()) as gateway:
        client = Client(gateway)
        late, streamed = await client.call("send", **asking()), await client.call("send", accept=BOTH, **asking())
        ends = AgentExited("this server ends; the task is kept")
        whole, event = late.encode_error(ends), streamed.encode_error(ends)
        late.answer.cancel()
        await streamed.events.aclose()

        (text,) = blocks(json.loads(whole.body)["result"])
        assert "yet (this server ends; the task is kept). The task goes on" in text
        assert (event.media_type, event.body[:21]) == (b"text/event-stream", b"event: message\ndata: ")
        assert json.loads(event.body.partition(b"data: ")[2])["id"] == 7


async def test_a_wait_that_fails_names_the_task() -> None:
    async with world(held()) as gateway:
        client = Client(gateway)
        client.failure = StoreFailed("the gateway's store failed")
        answer = await client.call("send", **asking())
        (text,) = blocks(json.loads((await answer.answer).body)["result"])

        assert [id_in(text)] == [task.id for task in await tasks_of(gateway)]
        assert "(the gateway's store failed)" in text


# --- the protocol over HTTP ------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["", "*/*", JSON, BOTH, "application/*;q=0.5", "text/html, Application/JSON"])
async def test_a_client_that_takes_json_gets_it(accept: str) -> None:
    async with world() as gateway:
        answer = await Client(gateway).call("agents", accept=accept)
        assert isinstance(answer, WireAnswer)

    assert (answer.status, answer.media_type) == (200, b"application/json")


@pytest.mark.parametrize("accept", ["text/event-stream", "text/html", "x", ",;"])
async def test_a_client_that_does_not_take_json_is_refused(accept: str) -> None:
    async with world() as gateway:
        answer = await Client(gateway).call("send", accept=accept, to="ada", text="hi")

        assert isinstance(answer, WireAnswer)
        if accept == ",;":
            assert answer.status == 200, "it names none"
            return
        assert (answer.status, answer.error, json.loads(answer.body)["error"]["code"]) == (
            406,
            "invalid_request",
            -32600,
        )
        assert not await tasks_of(gateway)


async def test_notifications_and_answers_are_accepted_without_one() -> None:
    async with world() as gateway:
        client = Client(gateway)
        messages: list[dict[str, Any]] = [
            {"method": "notifications/initialized"},
            {"method": "notifications/cancelled", "params": {"requestId": 7}},
            {"id": 3, "result": {}},
        ]
        for message in messages:
            answer = await client.post({"jsonrpc": "2.0", **message})
            assert (answer.status, answer.body, answer.error) == (202, b"", "")


@pytest.mark.parametrize(
    ("body", "code", "status"),
    [
        (b"", -32700, 400),
        (b"{", -32700, 400),
        (b"\xff", -32700, 400),
        (b"[" * 100_000, -32700, 400),
        (b"1" * 5000, -32700, 400),
        (b"[]", -32600, 400),
        (b"7", -32600, 400),
        (b"{}", -32600, 400),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}', -32601, 200),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"reply"}}', -32602, 200),
    ],
)
async def test_what_is_no_request_is_refused_as_json_rpc(body: bytes, code: int, status: int) -> None:
    async with world() as gateway:
        answer = await Client(gateway).post(body)

        assert (json.loads(answer.body)["error"]["code"], answer.status) == (code, status)
        assert answer.error == InvalidRequest.code


def stateless(method: str = "tools/call", **params: object) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


async def test_the_new_era_needs_headers_that_agree_with_the_request() -> None:
    name = "=?base64?" + base64.b64encode(b"agents").decode() + "?="
    right: dict[str, Any] = {"mcp_protocol_version": NEW, "mcp_method": "tools/call", "mcp_name": "agents"}
    async with world() as gateway:
        client = Client(gateway)

        async def answered(**headers: Any) -> tuple[int, int]:
            answer = await client.post(stateless(name="agents"), **headers)
            return answer.status, json.loads(answer.body).get("error", {}).get("code", 0)

        assert await answered(**right) == (200, 0)
        assert await answered(**{**right, "mcp_name": name}) == (200, 0)
        assert await answered(**{**right, "mcp_name": "=?base64?!?="}) == (400, -32020)
        for missing in right:
            assert await answered(**{key: value for key, value in right.items() if key != missing}) == (400, -32020)
            assert await answered(**{**right, missing: "other"}) == (400, -32020)


async def test_a_header_of_the_protocol_that_is_there_twice_is_refused() -> None:
    async with world() as gateway:
        client = Client(gateway)
        right = {"mcp_protocol_version": NEW, "mcp_method": "tools/call", "mcp_name": "agents"}
        again: dict[str, Any] = {**right, "mcp-method": "tools/call"}
        answer = await client.post(stateless(name="agents"), **again)

        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, -32020)


async def test_a_batch_is_answered_whole_in_the_version_that_has_it() -> None:
    calls = [tool_call("send", asking("one"), 1), tool_call("agents", {}, 2), tool_call("send", asking("two"), 3)]
    async with world() as gateway:
        client = Client(gateway)
        whole = json.loads((await (await client.post(calls)).answer).body)
        (streamed,) = await events_of(await client.post(calls, accept=BOTH, mcp_protocol_version="2025-03-26"))
        refused = await client.post(calls, mcp_protocol_version="2025-06-18")

        for replies in (whole, streamed):
            texts = {reply["id"]: blocks(reply["result"])[-1] for reply in replies}
            assert texts == {1: "echo: one", 2: "ada (codex): ready\nsynapse-codex-8121 (codex): ready", 3: "echo: two"}
        assert (refused.status, client.counted) == (400, [LAPTOP] * 4), "the server counts the first call of each"


@pytest.mark.parametrize("accept", [JSON, BOTH])
async def test_a_batch_that_breaks_off_ends_the_waits_of_its_first_calls(accept: str) -> None:
    async with world(held()) as gateway:
        client = Client(gateway)
        handle = client.handle

        async def breaks(request: Request[R], caller: Caller) -> R:
            if client.waits:
                raise RuntimeError("a bug")
            return await handle(request, caller)

        client.handle = breaks  # type: ignore[method-assign]  # the service fails in the second call
        with pytest.raises(RuntimeError):
            await client.post([tool_call("send", asking("one"), 1), tool_call("agents", {}, 2)], accept=accept)
        (wait,) = client.waits
        await asyncio.wait([wait], timeout=BOUND)

        assert wait.cancelled()


async def test_a_batch_over_the_rate_limit_runs_no_call() -> None:
    def refuse(_caller: Caller) -> None:
        raise RateLimited("too many requests", seconds=3)

    async with world() as gateway:
        (route,) = mcp_dialect(lambda _: "", refuse, StreamLimit(1).acquire, most_wait=1).routes
        assert isinstance(route, ServiceRoute)
        body = json.dumps([tool_call("send", {"to": "ada", "text": "hi"}, number) for number in range(2)]).encode()
        with pytest.raises(RateLimited):
            await route.serve(WireRequest("POST", "/mcp", body=body), gateway.service, LAPTOP)

        assert not await tasks_of(gateway)


async def test_a_trace_is_kept_with_the_task() -> None:
    parent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    async with world() as gateway:
        await Client(gateway).post(tool_call("send", {"to": "ada", "text": "hi"}), traceparent=parent)

        (task,) = await tasks_of(gateway)
        assert task.metadata["trace"] == {"traceparent": parent}


@pytest.mark.parametrize(
    ("error", "status", "code", "header"),
    [
        (CredentialsRefused("no", challenge="Bearer"), 401, -32600, (b"www-authenticate", b"Bearer")),
        (MethodNotAllowed("GET", "/mcp", ["POST"]), 405, -32600, (b"allow", b"POST")),
        (RateLimited("slowly", seconds=3), 429, -32600, (b"retry-after", b"3")),
        (QueueFull("full"), 429, -32600, None),
        (SynapseError("oh"), 500, -32603, None),
    ],
)
def test_a_request_that_is_not_read_is_refused_in_the_form_of_the_protocol(
    error: SynapseError, status: int, code: int, header: tuple[bytes, bytes] | None
) -> None:
    answer = encode_error(error)

    assert (answer.status, answer.headers) == (status, (header,) if header else ())
    wire = json.loads(answer.body)
    assert (wire["jsonrpc"], wire["id"], wire["error"]["code"]) == ("2.0", None, code)
    assert (wire["error"]["message"], wire["error"]["data"]["code"]) == (str(error), error.code)


def test_a_tool_is_told_no_header_that_it_cannot_send() -> None:
    away = MachineAway("box2", "noon", hint=KEEP_HINT)

    assert "Synapse-Queue" not in "".join(refusal(away).blocks)
