"""The terminal that a program gets, and its bytes: complete, in order, bounded."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from synapse.core.errors import AgentFailed, CommandMissing
from synapse.drivers.pty import program as pty_program
from synapse.drivers.pty.process import Launch, spawn
from synapse.drivers.pty.program import TerminalUsers
from synapse.drivers.pty.pump import PersonStreams
from tests.integration.pty.terminals import BOUND, agent, dummy, environment, line_program, staged, until

pytestmark = pytest.mark.integration


def launch_of(command: tuple[str, ...], **more: Any) -> Launch:
    return Launch(command=command, env=environment({"GIVEN": "yes"}), columns=91, rows=17, **more)


async def facts_of(launch: Launch) -> Mapping[str, object]:
    async with staged(launch.command, line_program(), launch=launch) as stage:
        await stage.sees("}")
        facts: Mapping[str, object] = eval(stage.screen().replace("\n", ""), {}, {})
        return facts


async def test_a_program_leads_a_session_on_its_own_terminal_with_default_signals_and_no_file_of_ours() -> None:
    extra = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(extra, True)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        facts = await facts_of(launch_of(agent("teller")))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        os.close(extra)

    assert facts == {
        "size": (91, 17),
        "leads": True,
        "foreground": True,
        "pipe": True,  # Python's own doing, in the program
        "masked": [],
        "given": "yes",
        "files": [],
    }


async def test_a_program_that_a_person_sees_is_a_job_in_the_foreground_of_its_session() -> None:
    terminal, person_side = os.openpty()
    try:
        facts = await facts_of(launch_of(agent("teller"), person_terminal=person_side))
    finally:
        os.close(terminal)
        os.close(person_side)

    assert facts["leads"] is False
    assert facts["foreground"] is True
    assert facts["files"] == []
    assert facts["masked"] == []


def test_a_program_is_started_from_any_thread() -> None:
    statuses: list[int] = []

    def start() -> None:
        program = spawn(Launch(command=("true",), env=environment()))
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(program.pid, 0)[1]))
        os.close(program.terminal)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)

    assert statuses == [0] * 8


def test_the_error_for_a_missing_program_says_how_to_install_it() -> None:
    with pytest.raises(CommandMissing, match="no-such-program") as caught:
        spawn(Launch(command=("no-such-program",), env=environment(), install_hint="npm install it"))

    assert caught.value.hint == "npm install it"


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_file_that_cannot_be_run_is_an_error(tmp_path: Path, *, is_seen: bool) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF but not really")
    broken.chmod(0o755)
    terminal, person_side = os.openpty()
    try:
        with pytest.raises(AgentFailed, match="cannot be run"):
            spawn(launch_of((str(broken),), person_terminal=person_side if is_seen else None))
    finally:
        os.close(terminal)
        os.close(person_side)


@pytest.mark.parametrize(
    ("script", "status"), [("exit 5", 5), ("kill -TERM $$", 128 + signal.SIGTERM), ("kill -9 $$", 137)]
)
@pytest.mark.parametrize("is_seen", [False, True])
async def test_the_exit_status_is_passed_on_as_a_shell_would(script: str, status: int, *, is_seen: bool) -> None:
    terminal, person_side = os.openpty()

    async def story() -> None:
        launch = launch_of(("sh", "-c", script), person_terminal=person_side if is_seen else None)
        async with staged(launch.command, line_program(), launch=launch) as stage:
            assert await asyncio.wait_for(stage.program.exited, BOUND) == status
            assert stage.program.exit_status == status

    try:
        await story()
    finally:
        os.close(terminal)
        os.close(person_side)


async def test_output_right_before_the_programs_end_is_not_lost() -> None:
    async with staged(("sh", "-c", "printf 'last words'"), line_program()) as stage:
        await asyncio.wait_for(stage.program.exited, BOUND)
        await stage.sees("last words")


async def test_the_end_is_reported_although_a_grandchild_keeps_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pty_program, "_DRAIN_SECONDS", 3 * BOUND)

    async with staged(("sh", "-c", "trap '' HUP; sleep 30 & exit 4"), line_program()) as stage:
        assert await asyncio.wait_for(stage.program.exited, BOUND) == 4


async def test_a_background_program_gets_its_queries_answered() -> None:
    async with staged(agent("asker"), line_program()) as stage:
        await stage.sees("answers: ")

        assert r"\x1b[?" in stage.screen()
        assert "R'" in stage.screen()


async def test_with_a_person_only_their_own_terminal_answers_queries() -> None:
    source, keys = os.pipe()
    shown, sink = os.pipe()

    users = TerminalUsers(person=PersonStreams(source, sink))
    async with staged(agent("asker"), line_program(), users=users) as stage:
        seen = b""
        while b"\x1b[6n" not in seen:
            seen += await asyncio.to_thread(os.read, shown, 100)
        # By now the emulator would have answered.
        await until(lambda: stage.program.screen.picture() is not None, "the emulator")
        os.write(keys, b"\x1b[?99c\x1b[7;8R")
        await stage.sees("answers: ")

        assert stage.screen().strip().endswith(r"answers: b'\x1b[?99c\x1b[7;8R'")


async def test_a_new_size_reaches_the_program_and_the_screen() -> None:
    async with staged(agent("sizes"), line_program()) as stage:
        await stage.sees("size 100x30")
        stage.program.resize(64, 20)
        await stage.sees("size 64x20")

        picture = stage.program.screen.picture()
        assert picture is not None
        assert (picture.columns, picture.rows) == (64, 20)
        stage.program.resize(0, 0)
        assert stage.program.size == (64, 20)


async def test_a_program_that_stops_itself_in_the_background_goes_on() -> None:
    async with staged(("sh", "-c", "kill -STOP $$; echo went on; read x"), line_program()) as stage:
        await stage.sees("went on")


async def test_stopping_ends_a_program_that_ignores_being_asked() -> None:
    async with staged(("sh", "-c", "trap '' TERM HUP; echo up; while :; do sleep 1; done"), dummy()) as stage:
        await stage.sees("up")
        await stage.driver.stop()

        assert stage.program.exit_status == 128 + signal.SIGKILL


async def test_every_byte_reaches_the_persons_terminal_unchanged_and_in_order() -> None:
    source, _ = os.pipe()
    shown, sink = os.pipe()
    script = "import sys; sys.stdout.write(''.join(f'{n}\\n' for n in range(200000)))"
    received = bytearray()

    def read() -> None:
        while data := os.read(shown, 65536):
            received.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    users = TerminalUsers(person=PersonStreams(source, sink))
    async with staged((sys.executable, "-c", script), line_program(), users=users) as stage:
        await asyncio.wait_for(stage.program.exited, BOUND)
    os.close(sink)
    reader.join(BOUND)

    assert bytes(received) == "".join(f"{number}\r\n" for number in range(200000)).encode()


async def test_a_terminal_that_does_not_drain_stalls_the_pump_and_nothing_else() -> None:
    source, _ = os.pipe()
    shown, sink = os.pipe()

    users = TerminalUsers(person=PersonStreams(source, sink))
    async with staged(agent("flooder", "5"), line_program(), users=users) as stage:
        # Without a reader the pipe fills and the pump waits in it. The loop and the driver live on.
        await until(lambda: stage.program.screen.picture() is not None and stage.screen() != "", "output")
        await asyncio.sleep(0.1)  # longer than the profile's quiet time
        assert stage.driver.view().state == "starting"
        assert stage.driver.view().gate
        assert not stage.program.exited.done()
        os.close(shown)


async def test_much_output_does_not_grow_the_memory() -> None:
    async with staged(agent("flooder", "60"), line_program()) as stage:
        await until(lambda: stage.program.screen.version > 200, "some output")
        before = resident_megabytes()
        await stage.ready()

        assert resident_megabytes() - before < 15


def resident_megabytes() -> float:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000_000
    return int(statm.read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 1_000_000
