"""`--file` inside an agent reads only its working folder and the system's temporary files, whatever a model names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from synapse.client.files import temporary_folder
from tests.unit.cli.conftest import Cli, HostFactory, become
from tests.unit.cli.fake_host import FakeHost

TEMPORARY = "synapse.client.files.temporary_folder"
SECRET = "the person's secret"


@pytest.fixture
def agent(home: Path, start: HostFactory, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """An agent with files in its working folder, in the temporary folder and elsewhere, and a shell inside it."""
    for folder in ("work/src", "temporary", "elsewhere"):
        (home / folder).mkdir(parents=True)
    (home / "elsewhere" / "secret").write_text(SECRET, encoding="utf-8")
    (home / "work" / "src" / "plan.md").write_text("the plan", encoding="utf-8")
    (home / "temporary" / "note").write_text("a note", encoding="utf-8")
    host = start()
    host.entry.working_dir = str(home / "work")
    host.registry.write(host.entry)
    become(host, monkeypatch)
    monkeypatch.setattr(TEMPORARY, lambda: str(home / "temporary"))
    monkeypatch.chdir(home / "work" / "src")
    return host


def sent_to(host: FakeHost) -> list[str]:
    """Returns the texts of all messages and replies that the host was given."""
    bodies = [body for method, _path, body in host.requests if method == "POST"]
    return [part["text"] for body in bodies for part in body.get("message", {}).get("parts", [])]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("plan.md", "the plan"),
        ("../src/plan.md", "the plan"),
        ("../alias", "the plan"),
        ("{home}/work/src/plan.md", "the plan"),
        ("{home}/temporary/note", "a note"),
    ],
)
def test_an_agent_sends_its_own_files(synapse: Cli, agent: FakeHost, home: Path, path: str, text: str) -> None:
    (home / "work" / "alias").symlink_to(home / "work" / "src" / "plan.md")

    ran = synapse("send", "codex", "--file", path.format(home=home))

    assert (ran.code, sent_to(agent)) == (0, [text])


REFUSED = [
    "{home}/elsewhere/secret",
    "../../elsewhere/secret",
    "{home}/work/../elsewhere/secret",
    "{home}/temporary/../elsewhere/secret",
    "../link",
    "../folder-link/secret",
    "{home}/temporary/link",
    "~/secret",
    "/dev/stdin",
    "/proc/self/environ",
    "../pipe",
    "../loop",
    "{home}/temporary",
    "../missing",
    "",
]


@pytest.mark.parametrize("path", REFUSED)
def test_an_agent_does_not_send_other_files(
    synapse: Cli, agent: FakeHost, home: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home / "elsewhere"))
    monkeypatch.setenv("TMPDIR", str(home / "elsewhere"))
    secret = home / "elsewhere" / "secret"
    (home / "work" / "link").symlink_to(secret)
    (home / "work" / "folder-link").symlink_to(home / "elsewhere")
    (home / "temporary" / "link").symlink_to(secret)
    (home / "work" / "loop").symlink_to("loop")
    os.mkfifo(home / "work" / "pipe")

    ran = synapse("send", "codex", "--file", path.format(home=home))

    assert ran.code == 2
    assert ran.err.startswith("Error: --file: ")
    assert "synapse send … - < FILE" in ran.err
    assert SECRET not in ran.err
    assert sent_to(agent) == []


@pytest.mark.parametrize("verb", [("reply",), ("broadcast", "--all"), ("send", "codex", "--response")])
def test_all_verbs_that_read_a_file_refuse_alike(synapse: Cli, agent: FakeHost, home: Path, verb: list[str]) -> None:
    ran = synapse(*verb, "--file", str(home / "elsewhere" / "secret"))

    assert ran.code == 2
    assert f"is not a file inside {home}/work or {home}/temporary" in ran.err
    assert sent_to(agent) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_cannot_be_read_is_an_error_with_a_reason(synapse: Cli, agent: FakeHost, home: Path) -> None:
    (home / "work" / "src" / "plan.md").chmod(0)

    ran = synapse("send", "codex", "--file", "plan.md")

    assert ran.code == 2
    assert "'plan.md' cannot be read: Permission denied" in ran.err


def test_a_huge_file_is_not_loaded(synapse: Cli, agent: FakeHost, home: Path) -> None:
    with (home / "work" / "huge").open("wb") as file:
        file.truncate(1 << 40)

    ran = synapse("send", "codex", "--file", "../huge")

    assert ran.code == 2
    assert "'../huge' has more than 32 MiB" in ran.err


def test_an_agent_that_is_not_registered_has_no_folder_of_its_own(
    synapse: Cli, agent: FakeHost, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNAPSE_AGENT_ID", "synapse-claude-8199")

    refused = synapse("send", "codex", "--file", "plan.md")
    sent = synapse("send", "codex", "--file", str(home / "temporary" / "note"))

    assert refused.code == 2
    assert f"is not a file inside {home}/temporary" in refused.err
    assert (sent.code, sent_to(agent)) == (0, ["a note"])


def test_a_person_sends_any_file(synapse: Cli, agent: FakeHost, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SYNAPSE_AGENT_ID")

    ran = synapse("send", "codex", "--file", str(home / "elsewhere" / "secret"))

    assert (ran.code, sent_to(agent)) == (0, [SECRET])


def test_the_folder_of_temporary_files_is_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/")

    assert temporary_folder() != "/"
    assert Path(temporary_folder()).is_dir()
