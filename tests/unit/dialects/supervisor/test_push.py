"""Push configurations, as the supervisor dialect has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from synapse.core.errors import InvalidField
from synapse.core.push import PushConfig
from synapse.core.requests import DeletePushConfig, GetPushConfig, ListPushConfigs, SetPushConfig
from synapse.dialects.dialect import Call
from tests.samples.calls import told
from tests.unit.dialects.supervisor.samples import AGENT, TASK_ID, ask

GLOBAL_ID = f"{AGENT}:{TASK_ID}"
CONFIGS = "/tasks/{id}/pushNotificationConfigs"
CONFIG = "/tasks/{id}/pushNotificationConfigs/{configId}"
PLAIN = PushConfig(id="c-1", url="https://x.example", dialect="supervisor")


@pytest.mark.parametrize("path_id", [TASK_ID, GLOBAL_ID])
@pytest.mark.parametrize("body_id", [{}, {"taskId": TASK_ID}, {"taskId": GLOBAL_ID}])
def test_a_webhook_is_set_for_the_task_of_the_address(path_id: str, body_id: dict[str, Any]) -> None:
    body = {**body_id, "pushNotificationConfig": {"id": "c-1", "url": "https://x.example"}}
    call = ask("POST", CONFIGS, body, id=path_id)

    assert call.request == SetPushConfig(task_id=TASK_ID, config=PLAIN)
    assert told(call, PLAIN)["taskId"] == GLOBAL_ID


def test_a_body_that_names_another_task_is_refused() -> None:
    with pytest.raises(InvalidField, match="taskId"):
        ask("POST", CONFIGS, {"taskId": "agent2:t", "pushNotificationConfig": {"url": "u"}}, id=TASK_ID)


def test_a_body_without_a_webhook_is_refused() -> None:
    with pytest.raises(InvalidField, match="pushNotificationConfig"):
        ask("POST", CONFIGS, {"taskId": TASK_ID}, id=TASK_ID)


def test_webhooks_are_read_listed_and_deleted() -> None:
    assert ask("GET", CONFIG, id=GLOBAL_ID, configId="c-1").request == GetPushConfig(task_id=TASK_ID, config_id="c-1")
    assert ask("GET", CONFIGS, id=GLOBAL_ID).request == ListPushConfigs(task_id=TASK_ID)
    delete = ask("DELETE", CONFIG, id=GLOBAL_ID, configId="c-1")
    assert delete.request == DeletePushConfig(task_id=TASK_ID, config_id="c-1")
    assert isinstance(delete, Call)
    assert (delete.status, delete.encode(None)) == (200, b"")


def test_all_that_was_configured_is_shown_to_whoever_may_ask() -> None:
    whole = replace(PLAIN, token="t", scheme="basic", credentials="c")

    assert told(ask("GET", CONFIGS, id=TASK_ID), (whole,))[0]["pushNotificationConfig"] == {
        "id": "c-1",
        "url": "https://x.example",
        "token": "t",
        "authentication": {"schemes": ["basic"], "credentials": "c"},
    }


def test_what_was_not_configured_is_not_shown() -> None:
    assert told(ask("GET", CONFIG, id=TASK_ID, configId="c-1"), PLAIN) == {
        "taskId": GLOBAL_ID,
        "pushNotificationConfig": {"id": "c-1", "url": "https://x.example"},
    }
    assert told(ask("GET", CONFIGS, id=TASK_ID), ()) == []
