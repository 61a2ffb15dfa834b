"""A script that is wrong is refused with the rule, the step and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.errors import InvalidScript
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.drivers.scripted.script import parse_script, read_script

DEFAULT = "[default]\nsteps = [{ say = 'a' }]"


def refused(script: str) -> InvalidScript:
    with pytest.raises(InvalidScript) as caught:
        parse_script(script, "s.toml")
    return caught.value


def step(table: str) -> str:
    return f"[default]\nsteps = [{table}]"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("", "s.toml: a script has at least one [[rule]] or a [default]"),
        ("[rule]\ntext = 'a'", "s.toml: write rules with two brackets: [[rule]]"),
        ("rule = 3", "s.toml: write rules with two brackets: [[rule]]"),
        ("rule = [3]", "s.toml: rule 1 must be a table, not 3"),
        ("default = 3", "s.toml: default must be a table, not 3"),
        ("rules = []", "s.toml: there is no key `rules`"),
        ("[[rule]]\nsteps = [{ say = 'a' }]", "s.toml: rule 1: a rule has a `message_id` or a `text` pattern"),
        ("[[rule]]\ntext = ''\nsteps = [{ say = 'a' }]", "s.toml: rule 1: `text` must be a text, not ''"),
        ("[[rule]]\ntext = 'a'", "s.toml: rule 1: `steps` must be a list of at least one step"),
        ("[[rule]]\ntext = 'a'\nname = 'x'\nsteps = []", "s.toml: rule 1 (x): `steps` must be a list of at least one"),
        ("[[rule]]\nname = 3", "s.toml: rule 1: `name` must be a text, not 3"),
        ("[[rule]]\ntext = '/(/'", "s.toml: rule 1: `text` is not a regular expression: "),
        ("[default]\nsteps = [3]", "s.toml: default, step 1 must be a table, not 3"),
        ("[default]\ntext = 'a'\nsteps = [{ say = 'a' }]", "s.toml: default: there is no key `text`"),
        ("startup = 3\n[default]\nsteps = [{ say = 'a' }]", "s.toml: startup must be a table, not 3"),
        ("[startup]\n[default]\nsteps = [{ say = 'a' }]", "s.toml: startup: `question` must be a text, but it is mi"),
        ("[startup]\nask = 'a'\n[default]\nsteps = [{ say = 'a' }]", "s.toml: startup: there is no key `ask`"),
        ("strict_types = 1\n[default]\nsteps = [{ say = 'a' }]", "s.toml: `strict_types` must be true or false, not 1"),
        ("extensions = 1\n[default]\nsteps = [{ say = 'a' }]", "s.toml: 'extensions' must be a list of tables, not 1"),
        (f"repeatable_ids = '/(/'\n{DEFAULT}", "s.toml: `repeatable_ids` is not a regular expression: "),
        (f"cue_ids = '/(/'\n{DEFAULT}", "s.toml: `cue_ids` is not a regular expression: "),
        (
            f"repeatable_ids = 'a'\ncue_ids = 'b'\n{DEFAULT}",
            "s.toml: `cue_ids` makes no sense here: it is the old name of `repeatable_ids`",
        ),
    ],
)
def test_a_wrong_script_is_refused_with_its_place(script: str, said: str) -> None:
    assert str(refused(script)).startswith(said)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("{ }", "must have one verb; it has none"),
        ("{ sy = 'a' }", "must have one verb; it has none"),
        ("{ say = 'a', wait = 1 }", "must have one verb; it has `say` and `wait`"),
        ("{ say = 3 }", "`say` must be a text, not 3"),
        ("{ say = '' }", "`say` must be a text, not ''"),
        ("{ say = 'a', every = 1 }", "there is no key `every`"),
        ("{ answer = 'a', direct = 1 }", "`direct` must be true or false, not 1"),
        ("{ wait = -1 }", "`wait` must be a number of seconds from 0 to 3600, not -1"),
        ("{ wait = 3601 }", "`wait` must be a number of seconds from 0 to 3600, not 3601"),
        ("{ wait = nan }", "`wait` must be a number of seconds from 0 to 3600, not nan"),
        ("{ wait = true }", "`wait` must be a number of seconds from 0 to 3600, not True"),
        ("{ wait = '1' }", "`wait` must be a number of seconds from 0 to 3600, not '1'"),
        ("{ exit = 256 }", "`exit` must be an exit status from 0 to 255, not 256"),
        ("{ exit = true }", "`exit` must be an exit status from 0 to 255, not True"),
        ("{ stream = 'a' }", "`stream` must be a list of texts, not 'a'"),
        ("{ stream = [] }", "`stream` must be a list of texts, not []"),
        ("{ stream = ['a', 3] }", "`stream` must be a list of texts, not ['a', 3]"),
        ("{ state = 'canceled' }", "`state` must be one of working, input_required, auth_required, completed, failed,"),
        ("{ question = '' }", "`question` must be a text, not ''"),
        ("{ question = 'a', kind = 'x' }", "`kind` must be one of permission, choice, startup, not 'x'"),
        ("{ question = 'a', options = [] }", "`options` must be a list of texts, not []"),
        ("{ question = 'a', takes_text = 1 }", "`takes_text` must be true or false, not 1"),
        ("{ question = 'a', option = ['b'] }", "there is no key `option`"),
        ("{ artifact = 'a' }", "an artifact has exactly one of text, bytes, base64, url, data, chunks"),
        ("{ artifact = 'a', text = 'b', url = 'c' }", "an artifact has exactly one of"),
        ("{ artifact = '', text = 'b' }", "`artifact` must be a text, not ''"),
        ("{ artifact = 'a', text = 'b', every = 1 }", "`every` makes no sense here: it goes with `chunks`"),
        ("{ artifact = 'a', chunks = ['b'], append = true }", "`append` makes no sense here: `chunks` sets it"),
        ("{ artifact = 'a', chunks = ['b'], last = true }", "`last` makes no sense here: `chunks` sets it"),
        ("{ artifact = 'a', base64 = '?' }", "`base64` cannot be decoded: "),
        ("{ artifact = 'a', data = { at = 2025-01-01 } }", "`data` holds 2025-01-01, which JSON does not know"),
        ("{ artifact = 'a', data = [inf] }", "`data` holds inf, which JSON does not know"),
    ],
)
def test_a_wrong_step_is_refused_with_its_key(table: str, said: str) -> None:
    error = str(refused(step(table)))

    assert error.removeprefix("s.toml: default, step 1").lstrip(": ").startswith(said)


@pytest.mark.parametrize("end", ["answer = 'a'", "reject = 'a'", "fail = 'a'", "exit = 0", "state = 'completed'"])
def test_a_step_that_is_never_played_is_refused(end: str) -> None:
    error = refused(step(f"{{ {end} }}, {{ say = 'unheard' }}"))

    assert str(error) == "s.toml: default, step 2 is never played: the step before it ends the task"


def test_a_key_that_was_probably_meant_is_named() -> None:
    assert refused(step("{ answer = 'a', direkt = true }")).hint == "did you mean `direct`?"
    assert refused(step("{ anwser = 'a' }")).hint == "did you mean `answer`?"
    assert refused(step("{ qqqqqqqq = 'a' }")).hint.startswith("known here: answer, artifact, ")
    assert refused("[[rule]]\nmesage_id = 'a'").hint == "did you mean `message_id`?"


def test_a_long_value_is_not_quoted_in_full() -> None:
    assert len(str(refused(step(f"{{ wait = '{'x' * 1000}' }}")))) < 200


def test_a_script_that_is_not_toml_says_where() -> None:
    assert str(refused("[[rule]\n")).startswith("s.toml: not TOML: ")
    assert "line 1" in str(refused("[[rule]\n"))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidScript, match=r"cannot read the script .*absent\.toml: No such file"):
        read_script(tmp_path / "absent.toml")
    with pytest.raises(InvalidScript, match="Is a directory"):
        read_script(tmp_path)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(b"# \xe9")

    with pytest.raises(InvalidScript, match=r"latin\.toml: not UTF-8 text: .* at byte 2"):
        read_script(path)


@pytest.mark.parametrize(
    ("steps", "directly"),
    [
        ('[{ answer = "hi", direct = true }]', True),
        ('[{ wait = 1 }, { answer = "hi", direct = true }]', True),
        ('[{ say = "one moment" }, { answer = "hi", direct = true }]', False),
        ('[{ answer = "hi" }]', False),
        ('[{ ask = "which?" }]', False),
    ],
)
def test_a_script_knows_beforehand_whether_a_message_gets_a_plain_message_and_no_task(
    steps: str, directly: bool
) -> None:
    script = parse_script(f"[default]\nsteps = {steps}")
    message = Message(message_id=MessageId("m"), role=Role.USER, parts=(TextPart(text="hello"),))

    assert script.answers_directly(message) is directly


def test_a_script_declares_extensions() -> None:
    rest = step("{ say = 'a' }")

    declared = parse_script(f"extensions = [{{ uri = 'urn:a', required = true }}]\n{rest}").extensions
    assert [(one.uri, one.required) for one in declared] == [("urn:a", True)]
    assert parse_script(rest).extensions == ()


@pytest.mark.parametrize("key", ["repeatable_ids", "cue_ids"])
def test_a_script_says_which_ids_may_come_again_for_another_message(key: str) -> None:
    repeatable = parse_script(f"{key} = 'tck-*'\n{DEFAULT}").repeatable_ids

    assert repeatable is not None
    assert repeatable.search("tck-complete-task-1")
    assert not repeatable.search("my-tck-1")
    assert parse_script(DEFAULT).repeatable_ids is None


def test_a_script_says_whether_its_card_is_strict() -> None:
    assert parse_script(f"strict_types = true\n{DEFAULT}").strict_types
    assert not parse_script(DEFAULT).strict_types


def test_a_script_switches_capabilities_off() -> None:
    rest = step("{ say = 'a' }")

    assert parse_script(rest).lacks == ()
    assert parse_script(f"push_notifications = false\n{rest}").lacks == ("pushNotifications",)
    assert parse_script(f"streaming = false\npush_notifications = true\n{rest}").lacks == ("streaming",)
    with pytest.raises(InvalidScript, match="streaming"):
        parse_script(f"streaming = 'no'\n{rest}")
