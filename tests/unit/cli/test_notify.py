"""`synapse notify`: a test notice, the rules, and the record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from synapse.cli.exit_codes import DONE, FAILED
from synapse.cli.main import main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with a state folder, and without a desktop."""
    monkeypatch.setenv("SYNAPSE_HOME", str(tmp_path / "a2a"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return tmp_path


@pytest.fixture
def desktop(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A desktop whose `notify-send` writes its arguments to a file."""
    program = home / "bin" / "notify-send"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>{home}/shown\necho 7\n', "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("DISPLAY", ":0")
    return home / "shown"


def test_a_test_notice_is_shown_withdrawn_and_recorded(desktop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synapse", "notify", "test"]) == DONE
    assert capsys.readouterr().out == "desktop: sent\n"
    assert "synapse asks you This is only a test." in desktop.read_text("utf-8")

    assert main(["synapse", "notify", "log", "--json"]) == DONE
    records = json.loads(capsys.readouterr().out)
    assert [(record["outlet"], record["result"]) for record in records] == [
        ("desktop", "sent"),
        ("desktop", "withdrawn"),
    ]


def test_without_an_outlet_the_test_fails_and_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synapse", "notify", "test"]) == FAILED
    assert "notify_webhook" in capsys.readouterr().err


def test_a_private_address_is_refused_until_the_setting_opens_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SYNAPSE_NOTIFY_WEBHOOK", "http://127.0.0.1:9/hook")

    assert main(["synapse", "notify", "test", "--json"]) == FAILED
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["outlet"], result["result"]) == ("webhook", "failed")
    assert "allow_private_webhooks" in result["why"]


def test_the_rules_show_no_secret_part_of_an_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SYNAPSE_NOTIFY_WEBHOOK", "https://example.com/hooks/0123456789abcdef0123456789")

    assert main(["synapse", "notify", "rules"]) == DONE
    shown = capsys.readouterr().out
    assert "https://example.com/hooks/…" in shown
    assert "0123456789abcdef" not in shown
    assert "quiet    none" in shown


def test_a_rule_that_cannot_be_read_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SYNAPSE_NOTIFY_QUIET", "at night")

    assert main(["synapse", "notify", "rules"]) != DONE
    assert "notify_quiet" in capsys.readouterr().err


def test_an_empty_record_names_the_next_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synapse", "notify", "log"]) == DONE
    assert "synapse notify test" in capsys.readouterr().err
