"""Agents in git worktrees of their own: real hosts, real git, and the verbs around them."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from synapse.cli.exit_codes import NOT_FOUND, REFUSED, USAGE
from synapse.registry.files import start_time
from tests.integration.attach.seat import Seat, seated
from tests.integration.cli.session import COMMAND, ROOT, Session, session
from tests.integration.waiting import until
from tests.samples.ports import own_port
from tests.samples.repositories import commit, configure_git, git

pytestmark = pytest.mark.integration


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session whose folder is a repository."""
    with session(tmp_path / "h") as opened:
        environ = configure_git(opened.home)
        opened.environ |= environ
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        git(opened.folder, "init", "--quiet", "--initial-branch=main")
        commit(opened.folder, "web/main.js")
        yield opened


def worktree(here: Session, name: str) -> Path:
    return here.home / "work.worktrees" / name


@contextmanager
def at_terminal(here: Session, *arguments: str) -> Generator[Seat]:
    """Runs a command at a terminal in the session's folder."""
    variables = [f"{name}={value}" for name, value in here.environ.items()]
    line = f"cd {shlex.quote(str(here.folder))} && exec {shlex.join([*COMMAND, *arguments])}"
    with seated("env", *variables, "TERM=xterm", "sh", "-c", line) as person:
        yield person


def test_an_agent_works_in_its_worktree_and_stays_there(here: Session) -> None:
    started = here.run("start", "dummy", "--name", "ada", "--port", str(own_port()), "--worktree", "--json")

    assert started.code == 0, started
    assert started.json["working_dir"] == str(worktree(here, "ada"))
    assert f"New worktree {worktree(here, 'ada')} on the branch synapse/ada".replace(str(here.home), "~") in started.err
    assert git(worktree(here, "ada"), "branch", "--show-current") == "synapse/ada"
    agent = started.json["cli_pid"]
    assert Path(f"/proc/{agent}/cwd").readlink() == worktree(here, "ada")
    variables = Path(f"/proc/{agent}/environ").read_bytes().split(b"\0")
    assert f"PWD={worktree(here, 'ada')}".encode() in variables

    again = here.run("restart", "ada", "--json").json
    assert (again["working_dir"], again["agent_id"]) == (str(worktree(here, "ada")), started.json["agent_id"])
    assert here.run("send", "ada", "hello", "--response").out.strip().endswith("echo: hello")


def test_a_second_agent_gets_a_second_worktree(here: Session) -> None:
    for number in (1, 2):
        started = here.run("start", "dummy", "--port", str(own_port()), "--worktree")
        assert started.code == 0, started
        name = "dummy" if number == 1 else "dummy-2"
        assert git(worktree(here, name), "branch", "--show-current") == f"synapse/{name}"

    taken = here.run("start", "dummy", "--port", str(own_port()), "--worktree", "synapse/dummy", "--json")

    assert taken.code == REFUSED
    assert "is checked out in" in taken.json["error"]["message"]
    first, second = here.run("worktrees", "--json").json
    assert [len(one["agents"]) for one in (first, second)] == [1, 1]
    assert first["agents"] != second["agents"]


def test_a_script_is_found_from_the_folder_where_it_was_named(here: Session) -> None:
    shutil.copy(ROOT / "docs" / "examples" / "hello.toml", here.folder)

    started = here.run("start", "scripted", "hello.toml", "--name", "bob", "--worktree", "feature/x", "--json")

    assert started.code == 0, started
    assert started.json["working_dir"] == str(worktree(here, "feature-x"))


def test_a_sub_folder_stays_the_sub_folder(here: Session) -> None:
    here.folder = here.folder / "web"

    started = here.run("start", "dummy", "--name", "ada", "--port", str(own_port()), "--worktree", "--json")

    assert started.json["working_dir"] == str(worktree(here, "ada") / "web")


def test_an_agent_in_the_foreground_works_in_its_worktree(here: Session) -> None:
    with at_terminal(here, "dummy", "--name", "ada", "--port", str(own_port()), "--worktree") as person:
        person.sees("New worktree")
        listed = until(lambda: here.run("list", "--json").json, "the agent")
        assert [one["working_dir"] for one in listed] == [str(worktree(here, "ada"))]
        assert Path(f"/proc/{listed[0]['cli_pid']}/cwd").readlink() == worktree(here, "ada")


def test_worktrees_are_listed_with_what_is_in_them(here: Session) -> None:
    here.start("ada", "--worktree")
    here.start("bob", "--worktree")
    assert here.run("stop", "bob").code == 0
    commit(worktree(here, "bob"), "done")
    (worktree(here, "ada") / "draft").write_text("draft", encoding="utf-8")

    ada, bob = here.run("worktrees", "--json").json

    assert (ada["name"], ada["branch"], ada["agent"], ada["agents"]) == ("ada", "synapse/ada", "ada", ["ada"])
    assert (ada["untracked"], ada["ahead"], ada["merged"]) == (1, 0, True)
    assert ada["kept_because"] == ["ada is in it", "1 file that git does not know"]
    assert (bob["agents"], bob["processes"], bob["ahead"], bob["merged"]) == ([], [], 1, False)
    assert bob["kept_because"] == ["1 commit neither pushed nor in main"]
    shown = here.run("worktrees").out.splitlines()
    assert shown[0].split() == ["PATH", "BRANCH", "AGENT", "DIRTY", "AHEAD", "MERGED", "IN", "USE"]
    assert shown[1].split() == ["~/work.worktrees/ada", "synapse/ada", "ada", "1", "0", "yes", "ada"]
    assert shown[2].split() == ["~/work.worktrees/bob", "synapse/bob", "bob", "no", "1", "no", "no"]


def test_a_worktree_is_removed_only_when_nothing_is_lost(here: Session) -> None:
    here.start("ada", "--worktree")
    in_use = here.run("worktrees", "remove", "ada")
    assert (in_use.code, in_use.err.splitlines()[-1]) == (REFUSED, "synapse stop ada")
    assert here.run("stop", "ada").code == 0
    (worktree(here, "ada") / "draft").write_text("draft", encoding="utf-8")
    dirty = here.run("worktrees", "remove", "ada")
    assert dirty.code == REFUSED
    assert "1 file that git does not know" in dirty.err
    assert "worktree remove --force" in dirty.err
    for force in ("--force", "-f"):
        assert here.run("worktrees", "remove", "ada", force).code == USAGE
    assert (worktree(here, "ada") / "draft").exists()
    (worktree(here, "ada") / "draft").unlink()

    removed = here.run("worktrees", "remove", str(worktree(here, "ada")), "--json")

    assert removed.json == {
        "path": str(worktree(here, "ada")),
        "branch": "synapse/ada",
        "branch_removed": True,
    }
    assert not worktree(here, "ada").exists()


def test_wrong_names_are_named(here: Session) -> None:
    here.start("ada", "--worktree")

    missing = here.run("worktrees", "remove", "adda")
    assert (missing.code, "Did you mean 'ada'?" in missing.err) == (NOT_FOUND, True)
    assert here.run("worktrees", "remove").code == USAGE
    assert here.run("worktrees", "prune").code == USAGE
    assert here.run("diff", "nobody").code == NOT_FOUND


def test_the_diff_of_an_agent_has_its_commits_changes_and_new_files(here: Session) -> None:
    here.start("ada", "--worktree")
    commit(worktree(here, "ada"), "done", "done\n", "finish it")
    (worktree(here, "ada") / "draft").write_text("draft\n", encoding="utf-8")

    shown = here.run("diff", "ada")

    assert shown.code == 0
    assert [line for line in shown.out.splitlines() if line.startswith("+++")] == ["+++ b/done", "+++ b/draft"]
    assert "\x1b" not in shown.out
    assert "ada: 1 commit on synapse/ada since" in shown.err
    assert "finish it" in shown.err
    assert "2 files changed, 2 insertions(+)" in here.run("diff", "ada", "--stat").out
    told = here.run("diff", "ada", "--json").json
    assert [(one["path"], one["untracked"]) for one in told["files"]] == [("done", False), ("draft", True)]
    assert [one["subject"] for one in told["commits"]] == ["finish it"]
    # After the agent has stopped, its worktree still goes by its name.
    assert here.run("stop", "ada").code == 0
    assert here.run("diff", "ada").out == shown.out


def test_the_diff_of_an_agent_without_a_worktree_is_that_of_its_folder(here: Session, tmp_path: Path) -> None:
    here.start("ada")
    (here.folder / "draft").write_text("draft\n", encoding="utf-8")
    assert "+++ b/draft" in here.run("diff", "ada").out

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    here.folder = elsewhere
    here.start("bob")
    refused = here.run("diff", "bob")
    assert refused.code == USAGE
    assert "bob has no diff" in refused.err
    assert "is not in a git repository" in refused.err


def test_a_diff_on_a_terminal_is_paged_by_the_persons_pager(here: Session) -> None:
    here.start("ada", "--worktree")
    (worktree(here, "ada") / "draft").write_text("draft\n", encoding="utf-8")
    git(here.folder, "config", "core.pager", "echo the repository chose >&2; cat")

    here.environ["PAGER"] = "sed 's/^/paged /'; echo end of pages"

    with at_terminal(here, "diff", "ada") as person:
        person.sees("end of pages")

    assert b"paged \x1b[1m+++ b/draft" in person.seen
    assert b"the repository chose" not in person.seen


def test_a_name_that_no_agent_may_have_makes_no_worktree(here: Session) -> None:
    assert here.run("start", "dummy", "--name", "codex", "--worktree").code == USAGE

    assert here.run("worktrees", "--json").json == []


def test_a_worktree_inherits_the_trust_in_its_repository(here: Session) -> None:
    profile = (ROOT / "synapse" / "terminal" / "profiles" / "dummy.toml").read_text(encoding="utf-8")
    commit(here.folder, ".synapse/profiles/robot.toml", profile)
    assert here.run("trust").code == 0
    port = str(own_port())

    started = here.run("start", "robot", "--name", "ada", "--port", port, "--worktree", "--json")

    assert started.code == 0, started
    assert started.json["working_dir"] == str(worktree(here, "ada"))
    assert here.run("stop", "ada").code == 0
    # The branch of the agent has other content now, which nobody has seen.
    (worktree(here, "ada") / ".synapse" / "profiles" / "robot.toml").write_text(f"{profile}\n", encoding="utf-8")
    refused = here.run("start", "robot", "--name", "ada", "--port", port, "--worktree")
    assert refused.code == NOT_FOUND
    assert "you have not trusted it" in refused.err


def test_outside_of_a_repository_an_agent_gets_no_worktree(here: Session, tmp_path: Path) -> None:
    here.folder = tmp_path

    refused = here.run("start", "dummy", "--worktree", "--json")

    assert refused.code == USAGE
    assert "is not in a git repository" in refused.json["error"]["message"]
    assert here.run("worktrees").code == 0


def test_two_starts_at_once_never_share_a_worktree(here: Session) -> None:
    starts = [here.begin("start", "dummy", "--port", str(own_port()), "--worktree", "--json") for _ in range(3)]
    said = [one.communicate(timeout=60) for one in starts]

    assert [one.returncode for one in starts] == [0, 0, 0], said
    folders = {agent["working_dir"] for agent in here.run("list", "--json").json}
    assert folders == {str(worktree(here, name)) for name in ("dummy", "dummy-2", "dummy-3")}


def test_a_host_that_is_killed_leaves_a_worktree_that_its_agent_gets_again(here: Session) -> None:
    agent = here.start("ada", "--worktree")
    (worktree(here, "ada") / "draft").write_text("draft", encoding="utf-8")
    os.kill(agent["pid"], signal.SIGKILL)
    until(lambda: start_time(agent["pid"]) is None, "the end of the host")
    # Its program ends with it, or is still in the folder: neither is an agent.
    again = here.start("ada", "--worktree")

    assert again["working_dir"] == agent["working_dir"]
    assert (worktree(here, "ada") / "draft").exists()
