"""Push notifications of a host: which dialect reads a configuration, and which one encodes its notifications."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.config.trust import TrustStore, read_project
from synapse.core.events import ArtifactAdded, MetadataChanged, StateChanged, Update
from synapse.core.message import Artifact, TextPart
from synapse.core.push import PushConfig
from synapse.core.requests import DeletePushConfig, ListPushConfigs, SetPushConfig
from synapse.core.task import TaskState
from synapse.push.service import encoder_for
from tests.samples.tasks import UPDATED, a_task
from tests.unit.host.test_routes import app, get, post
from tests.unit.server.exchange import Exchange, FixedService

URL = "https://example.com/hook"
FLAT = {"id": "c", "url": URL}
NESTED = {"pushNotificationConfig": FLAT}
DONE = a_task(state=TaskState.COMPLETED)
ENDED = Update(7, StateChanged(task_id=DONE.id, at=UPDATED, state=TaskState.COMPLETED), DONE)
GROWING = Update(
    6,
    ArtifactAdded(
        task_id=DONE.id,
        at=UPDATED,
        artifact=Artifact(artifact_id="a", parts=(TextPart(text="The wea"),), metadata={"partial": True}),
    ),
    DONE,
)
SILENT = Update(8, MetadataChanged(task_id=DONE.id, at=UPDATED, metadata={"x": 1}), DONE)


@pytest.mark.parametrize(
    ("dialect", "media_type", "field"),
    [
        ("a2a_v1", "application/a2a+json", "statusUpdate"),
        ("a2a_v0_3", "application/json", "kind"),
        ("supervisor", "application/json", "id"),
        ("one of tomorrow", "application/a2a+json", "statusUpdate"),
    ],
)
def test_the_dialect_that_configured_a_webhook_encodes_its_notifications(
    dialect: str, media_type: str, field: str
) -> None:
    told = encoder_for(dialect, "codex")(ENDED)

    assert told is not None
    assert told.media_type == media_type
    assert field in json.loads(told.body)
    assert encoder_for(dialect, "codex")(SILENT) is None
    assert encoder_for(dialect, "codex")(GROWING) is None


@pytest.mark.parametrize(
    ("path", "body", "version", "dialect"),
    [
        ("/tasks/t/pushNotificationConfigs", FLAT, "1.0", "a2a_v1"),
        ("/v1/tasks/t/pushNotificationConfigs", FLAT, "1.0", "a2a_v1"),
        ("/tasks/t/pushNotificationConfigs", NESTED, "0.3", "a2a_v0_3"),
        ("/v1/tasks/t/pushNotificationConfigs", NESTED, "", "a2a_v0_3"),
        ("/tasks/t/pushNotificationConfigs", NESTED, "", "a2a_v0_3"),
        ("/tasks/t/pushNotificationConfigs", FLAT, "", "a2a_v1"),
    ],
)
async def test_without_a_version_the_form_of_the_configuration_determines_it(
    path: str, body: dict[str, Any], version: str, dialect: str
) -> None:
    service = FixedService(PushConfig(id="c", url=URL, dialect=dialect))
    answer = await post(path, body, version).run(app(service))

    assert answer.status == 200
    assert service.asked[0][0] == SetPushConfig(task_id="t", config=PushConfig(id="c", url=URL, dialect=dialect))
    assert ("pushNotificationConfig" in answer.json) is (dialect == "a2a_v0_3")


async def test_lists_and_deletions_without_a_version_are_1_0() -> None:
    service = FixedService(())
    answer = await get("/tasks/t/pushNotificationConfigs").run(app(service))
    assert (answer.json, service.asked[0][0]) == ({"configs": [], "nextPageToken": ""}, ListPushConfigs(task_id="t"))

    service = FixedService(None)
    answer = await Exchange("DELETE", "/tasks/t/pushNotificationConfigs/c", query=b"").run(app(service))
    assert (answer.json, service.asked[0][0]) == ({}, DeletePushConfig(task_id="t", config_id="c"))


def test_a_project_cannot_allow_private_webhooks(tmp_path: Path) -> None:
    file = tmp_path / ".synapse" / "config.toml"
    file.parent.mkdir()
    file.write_text("allow_private_webhooks = true\n", encoding="utf-8")

    home = {"SYNAPSE_HOME": str(tmp_path.parent / f"{tmp_path.name}-state")}
    TrustStore(Path(home["SYNAPSE_HOME"])).decide(read_project(tmp_path), SystemClock().now(), trusted=True)

    settings = load_settings(environ=home, folder=tmp_path)

    assert not settings.allow_private_webhooks
    assert settings.project is not None
    assert settings.project.refused == ["allow_private_webhooks"]
    file.unlink()
    allowed = {"HOME": str(tmp_path), "SYNAPSE_ALLOW_PRIVATE_WEBHOOKS": "yes"}
    assert load_settings(environ=allowed, folder=tmp_path).allow_private_webhooks
