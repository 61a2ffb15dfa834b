"""A person's keys at real programs: those that leave the prompt empty hold nothing up; text is never typed over."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable

import pytest

from synapse.terminal.profile import Profile
from tests.integration.pty.terminals import BOUND, Stage, agent, answer, dummy, line_program, staged, until

pytestmark = pytest.mark.integration

UP, DOWN, RIGHT, LEFT = b"\x1b[A", b"\x1b[B", b"\x1b[C", b"\x1b[D"
MOVES = DOWN + RIGHT + LEFT + b"\x1b[H\x1b[F" + b"\x1bb\x1bf\x1b[1;5D"
PAGES = b"\x1b[5~\x1b[6~"
ERASES = b"\x7f\x1b[3~\x01\x05\x0b\x15\x17\x0c"
EMPTY_PASTE = b"\x1b[200~\x1b[201~"
FUNCTIONS = b"\x1b[15~\x1bOP\x1b[Z\x1bx"
MOUSE = b"\x1b[<0;5;5M\x1b[<0;5;5m\x1b[<35;6;6M"
FOCUS = b"\x1b[I\x1b[O"


def bash() -> tuple[tuple[str, ...], Profile]:
    command = (
        "env",
        "PS1=> ",
        "HISTFILE=",
        "INPUTRC=/dev/null",
        shutil.which("bash") or "bash",
        "--norc",
        "--noprofile",
    )
    return command, line_program(envelope=False)


def python() -> tuple[tuple[str, ...], Profile]:
    command = (sys.executable, "-I", "-q", "-i", "-c", "import readline, sys; sys.ps1 = '> '")
    return command, line_program(envelope=False)


async def pressed(stage: Stage, keys: bytes) -> None:
    """Press keys at an empty prompt, and wait until they are on their way to the program."""
    await stage.ready()
    await passed(stage, keys)


async def passed(stage: Stage, keys: bytes) -> None:
    """Press keys, and wait until they are on their way to the program."""
    stage.program.type_keys(keys)
    taken = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell() -> None:
        loop.call_soon_threadsafe(taken.set)

    stage.program.pump.call_soon(tell)
    await asyncio.wait_for(taken.wait(), BOUND)


async def gate_says(stage: Stage, why: str) -> None:
    await until(lambda: why in stage.driver.view().gate, f"the gate saying {why!r}", lambda: stage.driver.view().gate)


@pytest.mark.parametrize("keys", [UP, MOVES + PAGES + FUNCTIONS, MOUSE, ERASES, EMPTY_PASTE + FOCUS])
async def test_a_program_that_draws_its_own_line_gets_the_message_after_keys_that_did_nothing(keys: bytes) -> None:
    async with staged(agent("prompt_editor"), line_program()) as stage:
        await pressed(stage, keys)

        assert answer(await stage.turn("hello")) == "got: [A2A:1a2b3c4d:user] hello"


@pytest.mark.parametrize("program", [bash, python])
@pytest.mark.parametrize("keys", [MOVES, PAGES, ERASES, EMPTY_PASTE])
async def test_a_program_with_readline_gets_the_message_after_keys_that_did_nothing(
    program: Callable[[], tuple[tuple[str, ...], Profile]], keys: bytes
) -> None:
    command, profile = program()
    expression = "echo $((6 * 7))" if program is bash else "6 * 7"

    async with staged(command, profile) as stage:
        await pressed(stage, keys)

        assert answer(await stage.turn(expression)) == "42"


@pytest.mark.parametrize("program", [bash, python])
async def test_a_line_that_readline_recalled_is_never_typed_over(
    program: Callable[[], tuple[tuple[str, ...], Profile]],
) -> None:
    command, profile = program()

    async with staged(command, profile) as stage:
        expression = "echo $((6 * 7))" if program is bash else "6 * 7"
        await stage.turn(expression)
        await pressed(stage, UP)
        await stage.sees(f"> {expression}\n42\n> {expression}")
        await gate_says(stage, "there is text in the prompt")

        # The person clears it: then the next message is typed.
        stage.program.type_keys(b"\x15")
        assert answer(await stage.turn(expression.replace("7", "8"))) == "48"


@pytest.mark.parametrize("keys", [b"\t", b"\x19", b"x", b"hello" + UP, b"\x1b[200~pasted\x1b[201~"])
async def test_text_that_a_key_put_into_the_prompt_keeps_the_message_away(keys: bytes) -> None:
    async with staged(agent("prompt_editor"), line_program()) as stage:
        await pressed(stage, keys)
        await gate_says(stage, "there is text in the prompt")
        stage.program.type_keys(b"\x15")

        assert answer(await stage.turn("hello")) == "got: [A2A:1a2b3c4d:user] hello"


async def test_keys_that_a_program_has_not_read_keep_the_message_away() -> None:
    async with staged(agent("prompt_editor", "--deaf-after", "1"), line_program()) as stage:
        await pressed(stage, LEFT)
        await pressed(stage, UP)
        await gate_says(stage, "the program has not read a person's last keys yet")

        # Longer than a key that was read would be waited for.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stage.driver.wait_ready(), 3.5)


@pytest.mark.parametrize("keys", [UP, LEFT, b"\x0c", b"half a line"])
async def test_what_a_cooked_program_was_given_ahead_is_not_glued_to_the_message(keys: bytes) -> None:
    """The kernel keeps arrows as text, echoes them above the prompt, and the prompt that comes then looks empty."""
    async with staged(dummy().command, dummy()) as stage:
        await stage.ready()
        stage.program.type_keys(b"wait 60\r")
        await stage.sees("working for")
        await passed(stage, keys)
        # The kernel may echo them only after the program has gone on, and then into its prompt.
        await stage.sees(keys.decode().replace("\x1b", "^[").replace("\x0c", "^L"))
        # Not by Ctrl-C, which empties the kernel's line.
        os.kill(stage.program.pid, signal.SIGINT)
        await stage.sees("interrupted")
        await gate_says(stage, "a person has a half-typed line")
        stage.program.type_keys(b"\x03")

        assert answer(await asyncio.wait_for(stage.turn("hello"), BOUND)) == "echo: hello"


async def test_keys_for_a_pager_are_not_a_line_for_the_shell() -> None:
    command, profile = bash()

    async with staged(command, profile) as stage:
        await stage.ready()
        # Keys that come before stty would be echoed, and bash's next prompt would then stand behind them.
        opens = b"stty -icanon -echo; printf 'op%s\\n' ened; head -c 3 > /dev/null; stty icanon echo\r"
        stage.program.type_keys(opens)
        await stage.sees("opened")
        await until(lambda: stage.driver.view().state == "working", "the pager")
        stage.program.type_keys(b"jkq")

        assert answer(await stage.turn("echo $((6 * 7))")) == "42"


async def test_a_notice_stays_until_a_key_and_the_terminals_own_reports_are_none() -> None:
    async with staged(agent("prompt_editor"), line_program()) as stage:
        await stage.ready()
        shown = bytearray()
        stage.program.watch(shown.extend, shown.extend)
        stage.program.say("[← codex] done", "synapse show 54241e7e")
        await until(lambda: b"codex" in shown, "the notice", lambda: shown)
        painted = len(shown)

        await passed(stage, FOCUS + b"\x1b[?62;22c\x1b[<35;6;6M")
        assert b"\x1b[0;2m" not in shown[painted:]
        await passed(stage, LEFT)
        assert b"\x1b[0;2m" in shown[painted:]
