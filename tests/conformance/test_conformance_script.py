"""The scripted agent for the conformance kits: its behaviour for the message ids of the kit of 0.3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.a2a_push_rows import Webhook
from tests.conformance.real_hosts import scripted_host
from tests.conformance.wire_client import WireClient

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireClient]:
    with scripted_host(tmp_path_factory.mktemp("k")) as entry:
        yield WireClient(entry.port)


def result(host: WireClient, method: str, params: Any) -> Any:
    told = host.request("POST", "/", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).json
    assert "result" in told, told
    return told["result"]


def sent(host: WireClient, message_id: str, text: str, **more: Any) -> Any:
    parts = [{"kind": "text", "text": text}]
    spoken = {"kind": "message", "messageId": message_id, "role": "user", "parts": parts, **more}
    return result(host, "message/send", {"message": spoken})


def test_an_id_of_the_kit_may_be_reused_with_other_text(host: WireClient) -> None:
    first, again = sent(host, "test-simple-1", "one"), sent(host, "test-simple-1", "two")

    assert first["id"] != again["id"]
    assert again["artifacts"][0]["parts"][0]["text"] == "two"


def test_a_task_waits_for_its_webhook_and_then_ends(host: WireClient) -> None:
    with Webhook() as hook:
        asked = sent(host, "test-push-delivery-1", "begin")
        assert asked["status"]["state"] == "input-required"
        config = {"url": hook.url, "token": "tok"}
        result(host, "tasks/pushNotificationConfig/set", {"taskId": asked["id"], "pushNotificationConfig": config})

        done = sent(host, "test-push-trigger-1", "go on", taskId=asked["id"])

        assert done["status"]["state"] == "completed"
        headers, told = hook.next()
        assert headers["X-A2A-Notification-Token"] == "tok"
        assert (told["kind"], told["id"]) == ("task", asked["id"])
        while told["status"]["state"] != "completed":
            _, told = hook.next()
