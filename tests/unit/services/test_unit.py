"""The texts of units: what systemd reads from them is what was meant."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from synapse.core.errors import InvalidRequest
from synapse.services.unit import (
    MARKER,
    Installed,
    Unit,
    differences,
    read_installed,
    service_variables,
)

UNIT = Unit(
    name="synapse-team-shop.service",
    description="Synapse team shop",
    command=["/bin/true", "up", "--foreground", "/srv/kim/my shop/.synapse/team.toml"],
    variables={"PATH": "/srv/kim/.nvm/bin:/usr/bin", "LANG": "C.UTF-8"},
    variable_file="/srv/kim/.config/synapse/service.env",
    team="shop",
    file="/srv/kim/my shop/.synapse/team.toml",
)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize(
    "unit",
    [
        UNIT,
        replace(UNIT, command=["/bin/true"], team="", file=""),
        replace(UNIT, restart_delay_seconds=1, children_survive=True),
        replace(UNIT, description="100% \\", command=["/bin/true", "%h $HOME ${X}", 'a "b" \\', "\t\n", "日本", ""]),
        replace(UNIT, variables={"X": '%h $HOME "q" \\ \t\n', "Y": "it's"}, variable_file="/a b/100% #.env"),
    ],
    ids=["team", "gateway", "link", "odd arguments", "odd variables"],
)
def test_systemd_accepts_the_unit_without_a_warning(unit: Unit, tmp_path: Path) -> None:
    file = tmp_path / unit.name
    file.write_text(unit.text(), encoding="utf-8")
    (tmp_path / "run").mkdir()

    verified = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(file)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run"), "HOME": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )

    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


@pytest.mark.parametrize(
    ("unit", "wanted"),
    [
        (UNIT, ["StartLimitBurst=10", "RestartSec=5", "KillMode=mixed"]),
        (
            replace(UNIT, restart_delay_seconds=1, children_survive=True),
            ["StartLimitBurst=50", "RestartSec=1", "KillMode=process"],
        ),
    ],
    ids=["others", "link"],
)
def test_a_service_that_starts_again_sooner_may_do_so_more_often(unit: Unit, wanted: list[str]) -> None:
    settings = ("StartLimitBurst=", "RestartSec=", "KillMode=")

    assert [line for line in unit.text().splitlines() if line.startswith(settings)] == wanted


def test_an_argument_is_quoted_and_nothing_in_it_is_replaced() -> None:
    unit = replace(UNIT, command=["/opt/my 100%/synapse", "$HOME", "%h", 'say "hi"', "a\\b", "two\nlines"])

    wanted = r'ExecStart="/opt/my 100%%/synapse" "$$HOME" "%%h" "say \"hi\"" "a\\b" "two\x0alines"'
    assert wanted in unit.text().splitlines()


def test_a_variable_keeps_its_dollar_signs() -> None:
    unit = replace(UNIT, variables={"X": 'a $b "c" %d'})

    assert r'Environment="X=a $b \"c\" %%d"' in unit.text().splitlines()


@pytest.mark.parametrize(
    "unit",
    [
        replace(UNIT, command=["/opt/$x/synapse"]),
        replace(UNIT, command=['/opt/"x"/synapse']),
        replace(UNIT, command=["/opt/x\n/synapse"]),
        replace(UNIT, command=["/bin/true", "\udcff"]),
        replace(UNIT, variables={"X": "\0"}),
        replace(UNIT, variable_file="/srv/kim/odd\\"),
        replace(UNIT, variable_file="/srv/kim/a\nExecStart=/bin/sh"),
    ],
)
def test_what_systemd_cannot_read_is_refused(unit: Unit) -> None:
    with pytest.raises(InvalidRequest):
        unit.text()


def test_no_text_of_a_team_begins_a_setting_of_its_own() -> None:
    line = "x\nExecStart=/bin/evil"

    text = replace(UNIT, description=line, team=line, file=line, command=["/bin/true", line]).text()

    assert [one for one in text.splitlines() if one.startswith("ExecStart=")] == [
        r'ExecStart="/bin/true" "x\x0aExecStart=/bin/evil"'
    ]


def test_a_unit_of_ours_says_which_team_it_runs() -> None:
    assert read_installed(UNIT.text()) == Installed("shop", "/srv/kim/my shop/.synapse/team.toml")
    assert read_installed(replace(UNIT, team="", file="").text()) == Installed("", "")


def test_a_unit_of_somebody_else_is_recognised() -> None:
    assert read_installed(UNIT.text().replace(MARKER, "# Mine")) is None
    assert read_installed("") is None


def test_differences_are_named_by_setting_and_variable() -> None:
    changed = replace(UNIT, command=["/bin/false"], variables={"PATH": "/bin", "SYNAPSE_HOME": "/x"})

    assert differences(UNIT.text(), UNIT.text()) == []
    assert differences(UNIT.text(), changed.text()) == ["ExecStart", "PATH", "SYNAPSE_HOME", "LANG"]
    assert differences(UNIT.text() + "# a note\n", UNIT.text()) == ["comments"]


def test_a_service_gets_the_path_and_our_variables_but_nothing_of_an_agent() -> None:
    environ = {
        "PATH": "/srv/kim/.nvm/bin::bin:/usr/bin:/srv/kim/.nvm/bin",
        "SYNAPSE_HOME": "/data",
        "SYNAPSE_AGENT_ID": "synapse-claude-8100",
        "SYNAPSE_LAUNCHED_BY": "synapse-claude-8100",
        "XDG_CONFIG_HOME": "/srv/kim/etc",
        "ANTHROPIC_API_KEY": "secret",
        "LANG": "ja_JP.UTF-8",
        "LC_CTYPE": "",
    }

    assert service_variables(environ) == {
        "PATH": "/srv/kim/.nvm/bin:/usr/bin",
        "SYNAPSE_HOME": "/data",
        "XDG_CONFIG_HOME": "/srv/kim/etc",
        "LANG": "ja_JP.UTF-8",
    }


@pytest.mark.parametrize("environ", [{}, {"LANG": "C"}, {"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}])
def test_a_service_always_has_utf_8(environ: dict[str, str]) -> None:
    assert service_variables(environ) == {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}
