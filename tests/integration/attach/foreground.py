"""What a host in the foreground does with a person's terminal, and nothing else: run by the tests in a terminal.

    python foreground.py MODE NOTES COMMAND…      MODE: plain, raise

`@codex text` lines are written to the file NOTES.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from synapse.attach.person import PersonTerminal
from synapse.config.process import SystemClock
from synapse.drivers.pty.driver import PtyDriver
from synapse.drivers.pty.person_input import LineRouting
from synapse.drivers.pty.process import Launch
from synapse.drivers.pty.program import TerminalUsers, start_program
from synapse.drivers.pty.prompt_files import PromptFiles
from synapse.drivers.pty.pump import PersonStreams
from synapse.terminal.profile import parse_profile

PROFILE = {
    "title": "Test",
    "command": ["test"],
    "times": {"quiet": 0.02, "settle": 0.05},
    "prompt": {"pattern": "^[>%] (?P<text>.*)$", "at_cursor": True},
}


async def host(mode: str, notes: Path, command: tuple[str, ...]) -> int:
    person, clock = PersonTerminal(), SystemClock()
    columns, rows = person.size()
    profile = parse_profile(PROFILE, "test")

    def send(target: str, text: str) -> None:
        with notes.open("a", encoding="utf-8") as file:
            file.write(f"{target}: {text}\n")
        program.say(f"[→ {target}] sent")

    launch = Launch(
        command=command,
        env=os.environ,
        columns=columns,
        rows=rows,
        person_terminal=person.source if person.is_terminal else None,
        settings=person.settings,
    )
    users = TerminalUsers(
        person=PersonStreams(person.source, person.sink),
        routing=LineRouting(lambda name: name if name == "codex" else "", send) if person.is_terminal else None,
        suspend=person.suspend if person.is_terminal else None,
    )
    person.enter()
    leaving = b""
    try:
        program = await start_program(launch, profile, clock, users)
        driver = PtyDriver(program, profile, clock, PromptFiles(notes.parent, profile.limit_bytes))
        # A real host loads it later, and decides by it whether a line is meant for another agent: within a second of
        # the line, which a busy machine takes for the load alone.
        program.screen.load()
        program.begin()
        person.follow_size(asyncio.get_running_loop(), program.resize)
        if mode == "raise":
            raise RuntimeError("as asked")
        status = await program.exited
        leaving = program.leaving_bytes()
        await driver.stop()
    finally:
        person.restore(leaving)
    return status


if __name__ == "__main__":
    sys.exit(asyncio.run(host(sys.argv[1], Path(sys.argv[2]), tuple(sys.argv[3:]))))
