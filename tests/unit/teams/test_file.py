"""Reading team files."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.errors import InvalidRequest, InvalidSettings
from synapse.host.membership import Membership
from synapse.teams.file import EXAMPLE, Member, RestartRule, Team, parse_team

FOLDER = Path("/src/shop")
FILE = FOLDER / "team.toml"


def team_of(text: str, folder: Path = FOLDER) -> Team:
    return parse_team(text.encode(), FILE, folder)


def refusal_of(text: str) -> InvalidSettings:
    with pytest.raises(InvalidSettings) as caught:
        team_of(text)
    return caught.value


def test_a_table_has_every_option_of_an_agent() -> None:
    team = team_of(
        """
        [team]
        name = "shop"
        [agents.lead]
        profile = "claude"
        folder = "web"
        role = " You plan. "
        arguments = ["--model", "opus"]
        worktree = "lead-work"
        accepts = ["person", "team"]
        start = false
        restart = "always"
        port = 8105
        instructions = false
        mcp = false
        """
    )

    assert (team.name, team.file) == ("shop", FILE)
    assert team.members == (
        Member(
            name="lead",
            profile="claude",
            folder="/src/shop/web",
            membership=Membership(role="You plan.", team="shop", accepts=("person", "team")),
            arguments=("--model", "opus"),
            worktree=True,
            branch="lead-work",
            start=False,
            restart=RestartRule.ALWAYS,
            port=8105,
            instructions=False,
            mcp=False,
        ),
    )


def test_most_keys_have_a_default() -> None:
    (member,) = team_of('[agents.lead]\nprofile = "claude"').members

    assert member == Member(
        name="lead", profile="claude", folder="/src/shop", membership=Membership(team="shop"), start=True
    )
    assert (member.restart, member.verb) == (RestartRule.ON_FAILURE, ("claude",))


def test_a_scripted_agent_has_the_absolute_path_of_its_script() -> None:
    (member,) = team_of('[agents.echo]\nscript = "../echo.toml"').members

    assert (member.agent_type, member.verb) == ("scripted", ("scripted", "/src/echo.toml"))


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/people/ada")

    (member,) = team_of('[agents.lead]\nprofile = "claude"\nfolder = "~/web"').members

    assert member.folder == "/people/ada/web"


@pytest.mark.parametrize(
    ("folder", "name"), [("shop", "shop"), ("my shop", "my-shop"), (".hidden", "hidden"), ("店", "team"), ("", "team")]
)
def test_a_team_without_a_name_has_its_folders(folder: str, name: str) -> None:
    assert team_of('[agents.lead]\nprofile = "claude"', Path("/src") / folder if folder else Path("/")).name == name


def test_members_start_after_those_that_they_name() -> None:
    agents = {"web": ["db", "api"], "api": ["db"], "docs": [], "db": []}
    text = "\n".join(f'[agents.{name}]\nprofile = "dummy"\nafter = {after}' for name, after in agents.items())

    assert team_of(text).names == ["docs", "db", "api", "web"]


def test_named_members_come_with_those_that_they_start_after() -> None:
    agents = {"db": [], "api": ["db"], "web": ["api"], "docs": []}
    team = team_of("\n".join(f'[agents.{name}]\nprofile = "dummy"\nafter = {after}' for name, after in agents.items()))

    assert [member.name for member in team.chosen(["web"])] == ["db", "api", "web"]
    assert [member.name for member in team.chosen([])] == ["db", "api", "web", "docs"]
    with pytest.raises(InvalidRequest, match="no agent 'wep'") as caught:
        team.chosen(["wep"])
    assert caught.value.hint == "did you mean 'web'?"


def test_a_member_that_does_not_start_by_itself_starts_by_its_name() -> None:
    team = team_of('[agents.a]\nprofile = "dummy"\nstart = false\n[agents.b]\nprofile = "dummy"')

    assert [member.name for member in team.chosen([])] == ["b"]
    assert [member.name for member in team.chosen(["a"])] == ["a"]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[agents", f"{FILE} is not TOML: Expected ']'", ""),
        ("", f"{FILE} has no agents", "[agents.lead]"),
        ("agents = 1", f"{FILE}: [agents] must be a table, not 1", "teams.md"),
        ("[agents]\nlead = 1", f"{FILE}: [agents.lead] must be a table, not 1", "teams.md"),
        ("[team]\nnam = 'x'", f"{FILE}: [team]: there is no key `nam`", "did you mean `name`?"),
        ("[team]\nname = 'a b'", f"{FILE}: [team]: 'a b' cannot be a team's name", "letters"),
        ("[agent.lead]\nprofile = 'claude'", f"{FILE}: there is no key `agent`", "did you mean `agents`?"),
        ("[agents.lead]", "[agents.lead] has no profile", 'profile = "claude"'),
        ("[agents.lead]\nprofile = 'a'\nscript = 'b'", "[agents.lead] has a profile and a script", "script = FILE"),
        ("[agents.'a b']\nprofile = 'a'", "'a b' cannot be an agent's name", "letters"),
        ("[agents.lead]\nprofile = 'a'\nrol = 'x'", "[agents.lead]: there is no key `rol`", "did you mean `role`?"),
        ("[agents.lead]\nprofile = 'a'\nxyz = 'x'", "[agents.lead]: there is no key `xyz`", "known here: accepts,"),
        ("[agents.lead]\nprofile = 5", "[agents.lead]: `profile` must be a text, not 5", "teams.md"),
        ("[agents.lead]\nprofile = 'a'\narguments = [1]", "`arguments` must hold only texts, not 1", "teams.md"),
        ("[agents.lead]\nprofile = 'a'\nport = 70000", "`port` must be a port from 1 to 65535, not 70000", ""),
        ("[agents.lead]\nprofile = 'a'\nport = true", "`port` must be a port from 1 to 65535, not True", ""),
        ("[agents.lead]\nprofile = 'a'\nstart = 1", "`start` must be true or false, not 1", ""),
        ("[agents.lead]\nprofile = 'a'\nworktree = 1", "`worktree` must be true, false, or the name of a branch", ""),
        ("[agents.lead]\nprofile = 'a'\nworktree = ''", "`worktree` must be true, false, or the name of a branch", ""),
        (
            "[agents.lead]\nprofile = 'a'\nrestart = 'sometimes'",
            "`restart` must be one of on-failure, always, never, not 'sometimes'",
            "",
        ),
        ("[agents.lead]\nprofile = 'a'\nafter = ['lead']", "[agents.lead]: `after` names itself", "other agents"),
        (
            "[agents.lead]\nprofile = 'a'\nafter = ['dp']\n[agents.db]\nprofile = 'a'",
            "[agents.lead]: `after` names 'dp', which is not in this file",
            "did you mean 'db'?",
        ),
        (
            "\n".join(f"[agents.{a}]\nprofile='a'\nafter=['{b}']" for a, b in ("xa", "ab", "ba")),
            "agents start after each other: a → b → a",
            "remove one `after`",
        ),
        ("[agents.e]\nscript = 'e.toml'\nmcp = true", "`mcp` makes no sense here: a scripted agent", ""),
        (f"[agents.lead]\nprofile = 'a'\nrole = '{'x' * 9000}'", "[agents.lead]: the role has 9000 characters", "8000"),
    ],
)
def test_a_mistake_names_its_place_and_what_is_allowed(text: str, message: str, hint: str) -> None:
    error = refusal_of(text)

    assert message in str(error)
    assert str(FILE) in str(error)
    assert hint in error.hint


def test_a_file_names_a_bounded_number_of_agents() -> None:
    assert "has 101 agents" in str(refusal_of("\n".join(f"[agents.a{n}]\nprofile='a'" for n in range(101))))


def test_the_example_is_a_team_also_with_every_comment_removed() -> None:
    everything = "\n".join(
        line.removeprefix("# ") if line.startswith("# ") and (" = " in line or line.startswith("# [")) else line
        for line in EXAMPLE.splitlines()
    )

    assert team_of(EXAMPLE).names == ["lead", "coder"]
    assert [(one.name, one.worktree, one.port) for one in team_of(everything).members] == [
        ("lead", False, None),
        ("coder", True, 8125),
        ("echo", False, None),
    ]
