"""Each vendor's API, as a CLI would use it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.calibration.scripted_model import ModelRequest, Refuse, ToolCall
from tests.unit.calibration.vendors import ANTHROPIC, CHAT, GEMINI, RESPONSES, VENDORS, Json, Vendor, events

every_vendor = pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)


def read(vendor: Vendor, *messages: Json, **more: object) -> ModelRequest:
    return vendor.api.read({**vendor.request(list(messages)), **more}, vendor.path)


@every_vendor
def test_the_newest_prompt_says_which_scene_is_played(vendor: Vendor) -> None:
    asked = read(vendor, vendor.prompt("calibrate:long:1 please"), vendor.prompt("calibrate:slow:2 please"))

    assert asked.marker == ("slow", "2")
    assert asked.prompt == "calibrate:slow:2 please"
    assert asked.streams


@every_vendor
def test_text_that_a_cli_adds_in_tags_is_not_the_prompt(vendor: Vendor) -> None:
    asked = read(vendor, vendor.prompt("calibrate:long:1 please"), vendor.prompt("<reminder>be brief</reminder>"))

    assert asked.marker == ("long", "1")


@every_vendor
def test_results_of_tools_belong_to_the_newest_prompt(vendor: Vendor) -> None:
    asked = read(
        vendor,
        vendor.prompt("calibrate:deny:1"),
        vendor.result("of an older turn"),
        vendor.prompt("calibrate:approve:2"),
        vendor.result("it ran"),
    )

    assert asked.marker == ("approve", "2")
    assert asked.results == ("it ran",)


@every_vendor
def test_tools_are_read_with_their_parameters(vendor: Vendor) -> None:
    assert read(vendor, vendor.prompt("hello")).tools == {"Bash": frozenset({"command"})}


def test_a_tool_in_a_namespace_is_called_by_both_names() -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    inner = {"type": "function", "name": "send", "parameters": schema}
    space = {"type": "namespace", "name": "mcp__synapse", "tools": [inner]}
    asked = read(RESPONSES, RESPONSES.prompt("x"), tools=[space, {"type": "web_search"}])

    frames = list(RESPONSES.api.call(asked, ToolCall(name="mcp__synapse__send", arguments={"to": "bob"}), 7))

    assert asked.tools == {"mcp__synapse__send": {"to"}, "web_search": frozenset()}
    item = events(frames)[-1]["response"]["output"][0]
    assert (item["namespace"], item["name"], item["arguments"]) == ("mcp__synapse", "send", '{"to": "bob"}')


@every_vendor
def test_a_request_without_tools_or_for_json_is_a_side_request(vendor: Vendor) -> None:
    prompt = vendor.prompt("calibrate:long:1 please")

    assert read(vendor, prompt, tools=[]).marker == ("", "")
    assert read(vendor, prompt, **vendor.structured).marker == ("", "")


@every_vendor
def test_a_suggestion_after_the_turn_is_a_side_request(vendor: Vendor) -> None:
    asked = read(vendor, vendor.prompt("calibrate:long:1 please"), vendor.prompt("[SUGGESTION MODE: what next?]"))

    assert asked.marker == ("", "")


@every_vendor
def test_bodies_of_another_shape_are_read_as_empty(vendor: Vendor) -> None:
    for body in ({}, {"messages": 5}, {"input": None}, {"contents": ["x"]}, {"tools": {"a": 1}}):
        assert vendor.api.read(body, vendor.path).marker == ("", "")


@given(pieces=st.lists(st.text(min_size=1), min_size=1))
@every_vendor
def test_a_streamed_text_arrives_as_it_was_said(vendor: Vendor, pieces: list[str]) -> None:
    frames = list(vendor.api.say(read(vendor, vendor.prompt("x")), iter(pieces), 7))

    assert vendor.text_in(events(frames)) == "".join(pieces)


@every_vendor
def test_a_tool_call_arrives_with_its_arguments(vendor: Vendor) -> None:
    call = ToolCall(name="Bash", arguments={"command": "echo 'ü'"})

    frames = list(vendor.api.call(read(vendor, vendor.prompt("x")), call, 7))

    assert vendor.call_in(events(frames)) == ("Bash", {"command": "echo 'ü'"})


@every_vendor
def test_a_text_can_be_answered_in_one_piece(vendor: Vendor) -> None:
    assert vendor.whole_text(vendor.api.whole(read(vendor, vendor.prompt("x")), "a title", 7)) == "a title"


@every_vendor
@pytest.mark.parametrize("status", [400, 429, 500])
def test_errors_are_encoded_as_the_vendor_does(vendor: Vendor, status: int) -> None:
    assert vendor.api.refuse(Refuse(status, "too bad", retry_after=9))["error"]["message"] == "too bad"


def test_a_limit_says_when_it_ends_where_the_vendors_api_can_express_it() -> None:
    limit = Refuse(429, "too many", retry_after=60)

    assert RESPONSES.api.refuse(limit)["error"]["resets_in_seconds"] == 60
    assert GEMINI.api.refuse(limit)["error"]["details"][1]["retryDelay"] == "60s"
    assert ANTHROPIC.api.refuse(limit)["error"]["type"] == "rate_limit_error"
    assert CHAT.api.refuse(limit)["error"]["code"] == "rate_limit_exceeded"


def test_a_freeform_tool_of_responses_gets_text_instead_of_arguments() -> None:
    tools = [{"type": "custom", "name": "apply_patch"}]
    asked = RESPONSES.api.read({"input": "hello", "stream": True, "tools": tools}, "/v1/responses")

    streamed = events(list(RESPONSES.api.call(asked, ToolCall(name="apply_patch", arguments={"input": "***"}), 1)))

    assert streamed[-1]["response"]["output"][0]["input"] == "***"
    assert asked.said == ("hello",)
