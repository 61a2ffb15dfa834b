"""The extension for Gemini is one file that Synapse writes and removes, and nothing else is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from synapse.config.gemini_extension import Change, install_extension, is_installed, uninstall_extension
from synapse.core.errors import UnsupportedOperation

COMMAND = ("/opt/bin/synapse", "mcp")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".gemini" / "extensions" / "synapse"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_it_names_our_server_and_is_recognised(env: dict[str, str], folder: Path) -> None:
    assert not is_installed(env)

    assert install_extension(env, COMMAND) is Change.INSTALLED

    assert is_installed(env)
    extension = json.loads((folder / "gemini-extension.json").read_text(encoding="utf-8"))
    assert extension["name"] == "synapse"
    assert extension["mcpServers"] == {"synapse": {"command": "/opt/bin/synapse", "args": ["mcp"], "timeout": 600_000}}
    assert list(contents(folder)) == ["gemini-extension.json"]


def test_installing_again_changes_nothing(env: dict[str, str], folder: Path) -> None:
    install_extension(env, COMMAND)
    before = (folder / "gemini-extension.json").stat()

    assert install_extension(env, COMMAND) is Change.UNCHANGED

    assert (folder / "gemini-extension.json").stat() == before


def test_another_command_updates_it(env: dict[str, str], folder: Path) -> None:
    install_extension(env, COMMAND)

    assert install_extension(env, ("/usr/bin/synapse", "mcp")) is Change.UPDATED

    assert b"/usr/bin/synapse" in contents(folder)["gemini-extension.json"]


def test_uninstalling_leaves_all_else_as_it_was(env: dict[str, str], tmp_path: Path) -> None:
    for name in (".gemini/settings.json", ".gemini/extensions/theirs/gemini-extension.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"mine": true}', encoding="utf-8")
    before = contents(tmp_path)
    install_extension(env, COMMAND)

    assert uninstall_extension(env) is Change.REMOVED

    assert contents(tmp_path) == before
    assert not (tmp_path / ".gemini" / "extensions" / "synapse").exists()
    assert uninstall_extension(env) is Change.UNCHANGED


def test_gemini_may_have_its_folder_elsewhere(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path / "home"), "GEMINI_CLI_HOME": str(tmp_path / "other")}

    install_extension(env, COMMAND)

    assert (tmp_path / "other" / ".gemini" / "extensions" / "synapse" / "gemini-extension.json").is_file()
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("change", ["another", "edited", "beside", "broken", "empty"])
def test_what_synapse_did_not_write_is_neither_removed_nor_overwritten(
    env: dict[str, str], folder: Path, change: str
) -> None:
    install_extension(env, COMMAND)
    file = folder / "gemini-extension.json"
    extension = json.loads(file.read_text(encoding="utf-8"))
    if change == "another":
        file.write_text(json.dumps(extension | {"description": "mine"}), encoding="utf-8")
    elif change == "edited":
        extension["mcpServers"]["synapse"]["env"] = {"MINE": "1"}
        file.write_text(json.dumps(extension), encoding="utf-8")
    elif change == "beside":
        (folder / "GEMINI.md").write_text("mine", encoding="utf-8")
    elif change == "broken":
        file.write_text("{", encoding="utf-8")
    else:
        file.unlink()
    before = contents(folder)

    with pytest.raises(UnsupportedOperation, match="did not write"):
        uninstall_extension(env)
    if change != "beside":
        with pytest.raises(UnsupportedOperation, match="did not write"):
            install_extension(env, COMMAND)

    assert folder.is_dir()
    assert contents(folder) == before
    assert is_installed(env) is (change == "beside")


def test_a_link_is_not_followed(env: dict[str, str], folder: Path, tmp_path: Path) -> None:
    install_extension(env, COMMAND)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UnsupportedOperation, match="did not write"):
        uninstall_extension(env)
    with pytest.raises(UnsupportedOperation, match="did not write"):
        install_extension(env, ("/usr/bin/synapse", "mcp"))

    assert list(contents(tmp_path / "elsewhere")) == ["gemini-extension.json"]


def test_a_gemini_that_loads_only_listed_extensions_is_told_about(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    settings = '{"security": {"allowedExtensions": ["^https://"]}}'
    (tmp_path / ".gemini" / "settings.json").write_text(settings, encoding="utf-8")

    with pytest.raises(UnsupportedOperation, match="allowedExtensions"):
        install_extension(env, COMMAND)

    assert not (tmp_path / ".gemini" / "extensions").exists()
