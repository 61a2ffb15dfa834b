"""Users' files: those of today are still read, and those that are written have the fields that they had.

tests/golden/recorded/files holds a state folder and a settings folder with every key that today's code knows: settings,
profiles, a script, a gateway's configuration, API keys, external agents. A key that is no longer read makes its file
invalid, because all of them are read strictly. How to record anew: see golden.py.
"""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded.golden import FOLDER, check_json
from tests.integration.recorded.product import SCRIPT, Product, product, wire

pytestmark = pytest.mark.integration

FILES = FOLDER / "files"
KEY = "sk_0123456789ab_" + "5" * 64
TOKEN = (FILES / "home" / "token").read_text(encoding="utf-8")


@pytest.fixture
def synapse(tmp_path: Path) -> Iterator[Product]:
    """A user whose files were written by an earlier version."""
    with product(tmp_path) as made:
        shutil.copytree(FILES / "home", tmp_path, dirs_exist_ok=True)
        shutil.copytree(FILES / "config", tmp_path / "config")
        shutil.copy(SCRIPT, tmp_path / "agent.toml")
        for path in tmp_path.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
        yield made


def given(synapse: Product, *arguments: str) -> Any:
    ran = synapse.run(*arguments, "--json")
    assert ran.code == 0, ran
    return synapse.plain().json(ran.json)


def test_settings_and_profiles_are_read(synapse: Product) -> None:
    found = {one["subject"]: one for one in synapse.run("doctor", "--json").json["findings"]}

    assert {name: found[name]["level"] for name in ("painter", "liner")} == {"painter": "ok", "liner": "ok"}, found
    check_json("files/read/config.json", given(synapse, "config"))


def test_keys_and_external_agents_are_read(synapse: Product) -> None:
    check_json("files/read/keys.json", given(synapse, "keys", "list"))
    check_json("files/read/external.json", given(synapse, "external", "list"))


def test_a_gateway_reads_its_configuration_and_lets_in_who_has_a_key(synapse: Product) -> None:
    config = (FILES / "home" / "gateway.toml").read_text(encoding="utf-8")
    client = wire(synapse.start_gateway(config))
    agents = client.request("GET", "/agents", None, {"Authorization": f"Bearer {KEY}"})
    tasks = client.request("GET", "/tasks", None, {"Authorization": f"Bearer {KEY}"})

    assert (agents.status, tasks.status) == (200, 200), (agents.body, tasks.body)
    assert client.request("GET", "/tasks", None, {"Authorization": f"Bearer {KEY[:-1]}6"}).status == 401
    check_json("files/read/gateway_agents.json", synapse.plain().json(agents.json))


def test_what_is_written_has_the_fields_that_it_had(synapse: Product) -> None:
    home = synapse.home
    entry = synapse.start_agent("ada", home / "agent.toml")
    assert (home / "token").read_text(encoding="utf-8") == TOKEN, "a token that is there is kept"
    assert synapse.run("keys", "create", "ci", "--agents", "ada", "--expires", "30d", "--all-tasks").code == 0
    added = ("external", "add", entry["endpoint"], "--alias", "ada", "--bearer-env", "ADA_TOKEN")
    assert synapse.run(*added, ADA_TOKEN="secret").code == 0
    (home / "p" / ".synapse").mkdir(parents=True)
    (home / "p" / ".synapse" / "config.toml").write_text("queue_limit = 5\n", encoding="utf-8")
    assert synapse.run("trust", str(home / "p")).code == 0

    plain = synapse.plain(ada=entry)
    keys = read(home / "keys.json")
    plain.know(keys["keys"][-1]["id"], "key id")
    plain.know(keys["keys"][-1]["sha256"], "digest")
    written = {
        "registry": read(home / "registry" / f"{entry['agent_id']}.json"),
        "keys": keys,
        "external": read(home / "external" / "ada.json"),
        "external credentials": read(*(home / "external" / "credentials").glob("ada*")),
        "trust": read(*(home / "trust").glob("*.json")),
        "modes": {name: oct(mode(home / name)) for name in ("keys.json", "token", "store.db", "external", "registry")},
    }
    check_json("files/written.json", plain.json(written))


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
