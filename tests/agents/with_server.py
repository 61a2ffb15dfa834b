"""A CLI with an MCP server: its child reports the tools once a file is there, then the CLI is `line_recorder.py`.

    with_server.py LOG --tools FILE [arguments of line_recorder.py]

The file has the body of the report; its answer is written beside it, into FILE.answer. The child ends when the file is
removed, or with the CLI.
"""

import os
import sys
import time
from pathlib import Path

AGENTS = Path(__file__).resolve().parent


def main() -> None:
    log, _, file, *more = sys.argv[1:]
    cli = os.getpid()
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        report(Path(file))
        while Path(file).exists() and os.getppid() == cli:
            time.sleep(0.01)
        os._exit(0)
    os.execv(sys.executable, [sys.executable, str(AGENTS / "line_recorder.py"), log, *more])


def report(file: Path) -> None:
    sys.path.insert(0, str(AGENTS.parent.parent))
    from synapse.client.http import HostAddress, request  # noqa: PLC0415 - the CLI itself needs none of it
    from synapse.core.json_text import decode_object  # noqa: PLC0415 - as above

    while not file.exists():
        time.sleep(0.01)
    body = decode_object(file.read_bytes())
    answer = request(HostAddress(os.environ["SYNAPSE_SOCKET"]), "POST", "/mcp/ready", body)
    draft = Path(f"{file}.answer.part")
    draft.write_text(f"{answer.status} {answer.body}", encoding="utf-8")
    draft.rename(f"{file}.answer")


main()
