"""What the scripted model does, and how it calls the tools of a CLI."""

from __future__ import annotations

import pytest

from synapse.calibration.scripted_model import (
    SCENES,
    CallMcpTool,
    CallTool,
    ModelRequest,
    Refuse,
    SayText,
    Use,
    act_for,
    call_for,
)


def test_the_first_act_is_for_the_prompt_and_the_last_one_stays() -> None:
    assert isinstance(act_for(SCENES, "approve", 0), CallTool)
    assert isinstance(act_for(SCENES, "approve", 1), SayText)
    assert act_for(SCENES, "approve", 9) == act_for(SCENES, "approve", 1)


def test_an_unknown_scene_is_a_plain_answer() -> None:
    assert act_for(SCENES, "nobody-knows", 0) == act_for(SCENES, "one-line", 0)


def test_the_long_answer_has_what_terminals_and_markdown_change() -> None:
    (act,) = SCENES["long"]

    assert isinstance(act, SayText)
    assert len(act.text.encode()) > 16_000
    assert len(act.pieces) > 50
    for special in ("FAKE-ECHO[34]", "```python", "日本語", "**bold**", "\\backslash", "<tag"):
        assert special in act.text


def test_every_error_is_one_that_all_vendor_apis_can_express() -> None:
    statuses = {act.status for scene in SCENES.values() for act in scene if isinstance(act, Refuse)}

    assert statuses <= {400, 429, 500}


# The tools as the five CLIs offer them (read in their requests).
SHELLS = [
    ("Bash", {"command", "description", "timeout"}, {"command": "ls", "description": "Make a file"}),
    ("run_shell_command", {"command", "description"}, {"command": "ls", "description": "Make a file"}),
    ("bash", {"command"}, {"command": "ls"}),
    ("shell", {"command", "workdir"}, {"command": ["bash", "-c", "ls"]}),
]


@pytest.mark.parametrize(("name", "offered", "arguments"), SHELLS)
def test_a_shell_is_called_with_the_parameters_that_it_has(
    name: str, offered: set[str], arguments: dict[str, object]
) -> None:
    call = call_for(CallTool(Use.SHELL, "ls"), ModelRequest(tools={name: frozenset(offered)}))

    assert call is not None
    assert (call.name, call.arguments) == (name, arguments)


def test_codex_is_asked_to_leave_its_sandbox_so_that_it_asks_a_person() -> None:
    offered = frozenset({"cmd", "sandbox_permissions"})

    call = call_for(CallTool(Use.SHELL, "ls"), ModelRequest(tools={"exec_command": offered}))

    assert call is not None
    assert call.arguments["cmd"] == "ls"
    assert call.arguments["sandbox_permissions"] == "require_escalated"


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("AskUserQuestion", {"questions"}),
        ("ask_user", {"questions"}),
        ("ask_user", {"message", "requestedSchema"}),
        ("ask_user", {"question", "choices"}),
        ("question", {"questions"}),
        ("request_user_input", {"questions"}),
    ],
)
def test_a_question_has_its_text_and_both_colours(name: str, offered: set[str]) -> None:
    call = call_for(CallTool(Use.ASK), ModelRequest(tools={name: frozenset(offered)}))

    assert call is not None
    assert all(words in str(call.arguments) for words in ("Which colour?", "Blue", "Red"))
    assert set(call.arguments) & offered


# One MCP tool as the five CLIs offer it; Codex's is in a namespace, which is read as Claude's name.
@pytest.mark.parametrize("name", ["mcp__synapse__send", "mcp_synapse_send", "synapse_send", "synapse-send"])
def test_a_tool_of_an_mcp_server_is_called_under_the_name_that_the_cli_offers(name: str) -> None:
    request = ModelRequest(tools={"Bash": frozenset(), name: frozenset({"to", "text"})})

    call = call_for(CallMcpTool("send", {"to": "bob"}), request)

    assert call is not None
    assert (call.name, call.arguments) == (name, {"to": "bob"})
    assert call_for(CallMcpTool("send", server="other"), request) is None


def test_a_tool_that_is_not_offered_is_not_called() -> None:
    assert call_for(CallTool(Use.ASK), ModelRequest(tools={"Bash": frozenset()})) is None
