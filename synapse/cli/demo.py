"""`synapse demo`: lets two built-in agents talk, in a temporary folder of their own."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from synapse.cli.exit_codes import DONE, FAILED
from synapse.cli.output import print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.host.background import persons_environment, stop_host
from synapse.registry.files import FileRegistry

EXAMPLES = """
synapse demo
"""
STORY = (
    ("Two agents start in the background. No AI tool is needed: `dummy` is built in.", "start dummy --name ada"),
    ("", "start dummy --name bob"),
    ("They find each other in the registry, a folder of files.", "list"),
    ("A person asks one of them and waits for the answer.", 'send bob "hello" --response'),
    ("Now ada asks bob and answers with what bob said.", 'send ada "ask bob are you there?" --response'),
    ("A message can also be sent without waiting for an answer.", 'send bob "no answer needed" --wait=submitted'),
)


def run_demo(arguments: list[str]) -> int:
    """Plays the demo and returns the exit code."""
    VerbParser("demo", examples=EXAMPLES, json=False).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="synapse-demo-") as folder:
        registry = FileRegistry(Path(folder, "registry"))
        try:
            failed = not all(_play(comment, command, folder) for comment, command in STORY)
        finally:
            for entry in registry.entries():
                stop_host(entry, registry, force=True)
    print_result("\nBoth agents have stopped, and their folder is removed.")
    print_result(
        'Now try your own: `synapse claude` here, `synapse codex` there, then `synapse send codex "hello" --response`.'
    )
    return FAILED if failed else DONE


def _play(comment: str, command: str, folder: str) -> bool:
    """Prints a command and runs it; returns whether it succeeded."""
    if comment:
        print_result(f"\n{comment}")
    print_result(f"$ synapse {command}")
    timeout = ["--timeout", "30"] if command.startswith("send") else []
    words = [sys.executable, "-P", "-m", "synapse.cli.main", *shlex.split(command), *timeout]
    instructions = ["--no-instructions"] if command.startswith("start") else []
    env = {**persons_environment(), "SYNAPSE_HOME": folder, "SYNAPSE_UDS_DIR": str(Path(folder, "s"))}
    done = subprocess.run([*words, *instructions], env=env, check=False)  # noqa: S603 - our own command
    if done.returncode != DONE:
        print_notice(f"(failed with exit code {done.returncode}; `synapse doctor` may show why)")
    return done.returncode == DONE
