"""Writes the documents that the code knows better. `scripts/docs` runs it; a test checks that it was run."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from docs.conformance_page import conformance_page
from docs.gateway_page import gateway_page
from docs.openapi import openapi_text
from synapse.cli import exit_codes
from synapse.cli.main import VERBS, find_verb
from synapse.config.settings import FOR_PROJECTS, MEANINGS, PREFIX, Settings
from synapse.core import errors
from synapse.core.lifecycle import NEXT_STATES
from synapse.dialects.a2a_v0_3.routes import error_shape as former_error_shape
from synapse.dialects.a2a_v1.routes import error_shape
from synapse.dialects.hub.encode import error_shape as hub_error_shape
from synapse.dialects.supervisor.routes import error_shape as supervisor_error_shape
from synapse.dialects.synapse.routes import CardFacts, synapse_dialect
from synapse.dialects.task_json import http_status

DOCS: Final = Path(__file__).parent
NOTICE: Final = "<!-- written by scripts/docs; edit docs/generate.py instead -->\n\n"

# What each route is for. A route without a line here fails the generation.
PURPOSES: Final = {
    "GET /.well-known/agent.json": "the agent card",
    "POST /tasks/send": 'queue a message (with `task_id`: for a task that asks); answers `{"task": …}` once durable',
    "POST /tasks/send-priority": "the same with `?priority=1` to `5`; 5 interrupts first",
    "POST /tasks/create": "open a task that waits for a reply; nothing is typed",
    "GET /tasks": "tasks, newest first: `?status`, `context_id`, `parent_id`, `updated_after`, `limit`, `cursor`",
    "GET /tasks/{id}": "one task, by its id or a unique beginning of it",
    "POST /tasks/{id}/cancel": "take a queued message back, or interrupt what runs",
    "POST /tasks/{id}/leave": "stop waiting for a reply: if the task has ended, its answer is in `task`; with `left`,"
    " the answer is delivered to the agent as a message",
    "POST /tasks/{id}/resolve": "a person's `verdict` on a message in doubt: `delivered`, `retry` or `fail`",
    "POST /tasks/{id}/answer": "what the task's program asks: `verdict` (`allow`, `deny`), `option` or `text`",
    "GET /tasks/{id}/subscribe": "server-sent events of the task; `Last-Event-ID` resumes",
    "POST /reply": "answer the agent's current or last request, or the one named by `task_id`",
    "POST /answer": "the same for what the agent asks now, in a task or at its start",
    "POST /questions": "the agent asks a person: a message and perhaps `options`; `synapse answer` completes the task",
    "POST /signals": "a hook of the agent's own CLI reports; nobody else may",
    "POST /mcp/ready": "the agent's own MCP server reports that the CLI has listed its tools; nobody else may",
    "GET /queue": "what waits, in the order of delivery",
    "GET /status": "IDLE or BUSY, the finer state, why, what each source says, in `held` why messages wait, in"
    " `owes` the answers that the agent still has to give, and in `usage` what its turns cost today and in all; with"
    " `?finished=N` (at most 20) also the tasks that ended last, in brief: the beginning of each text, and names of"
    " files",
    "GET /status/subscribe": "events `status`: what the agent does now, then each change of its state, until it exits",
    "GET /status/watch": "events `status`: the whole of `GET /status` now, then whenever it has changed, at most 20"
    " times a second; takes `?finished=N`, too",
    "GET /screen": "what the agent's terminal shows, and with `?lines=N` the end of its scrollback: `lines` of runs,"
    " each a text and perhaps a style (`fg`, `bg`: a number of the palette or `#rrggbb`; `b`, `d`, `i`, `u`, `r`, `s`);"
    " `If-None-Match` with the `version` answers 304; on the Unix socket only, not for other agents; 404 without a"
    " terminal",
    "POST /commands": "a gateway asks on behalf of a caller that it has let in; on the Unix socket only",
    "POST /external/discover": "find an agent elsewhere by its card and remember it",
    "GET /external/agents": "the known external agents",
    "DELETE /external/agents/{alias}": "forget one",
    "POST /external/agents/{alias}/send": "send it a message and return its answer",
}


def documents() -> dict[Path, str]:
    """Every generated document, whole."""
    return {
        DOCS / "reference" / "cli.md": _cli(),
        DOCS / "reference" / "http.md": _http(),
        DOCS / "reference" / "gateway-http.md": gateway_page(NOTICE),
        DOCS / "reference" / "openapi.json": openapi_text(),
        DOCS / "reference" / "conformance.md": conformance_page(NOTICE),
        DOCS / "reference" / "settings.md": _settings(),
        DOCS / "reference" / "errors.md": _errors(),
        DOCS / "reference" / "exit-codes.md": _exit_codes(),
        DOCS / "reference" / "lifecycle.md": _lifecycle(),
    }


def _cli() -> str:
    os.environ["COLUMNS"] = "100"
    os.environ["NO_COLOR"] = "1"
    sections = [f"# Command line\n\n{NOTICE}```text\n{_help([])}```\n"]
    for verb in (verb for verb in VERBS if verb != "help"):
        text = _help([verb, "--help"])
        sections.append(f"## synapse {verb}\n\n```text\n{text}```\n")
        sections += [
            f"### synapse {verb} {action}\n\n```text\n{_help([verb, action, '--help'])}```\n"
            for action in _actions(text)
        ]
    return "\n".join(sections)


def _actions(text: str) -> list[str]:
    """Returns the actions that the help of a verb lists, each of which has a help of its own."""
    listed = text.partition("\n  ACTION\n")[2].partition("\n\n")[0]
    return re.findall(r"^    ([a-z-]+)(?:  |$)", listed, re.MULTILINE)


def _help(arguments: list[str]) -> str:
    """What a person sees; argparse leaves by SystemExit."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        find_verb(arguments)()
    said.seek(0)
    return "\n".join(line.rstrip() for line in said.read().rstrip().splitlines()) + "\n"


def _http() -> str:
    facts = CardFacts(agent_id="synapse-claude-8100", agent_type="claude", title="Claude", url="http://localhost:8100")
    rows = [f"| `{name}` | {PURPOSES[name]} |" for name in _route_names(facts)]
    return "\n".join(
        [
            "# HTTP",
            "",
            NOTICE.rstrip(),
            "",
            "Each agent serves this on its Unix socket (`synapse status` names it) and on its TCP port, loopback only.",
            "The same user needs no token. Bodies are JSON (`Content-Type: application/json`).",
            "",
            "| request | what it does |",
            "|---|---|",
            *rows,
            "",
            "`GET /attach` is a WebSocket on the Unix socket, for persons: `synapse attach` uses it.",
            "",
            'Errors are `{"error": {"code": …, "message": …, "hint": …}}`; the codes are in [errors](errors.md).',
            "",
            "The same address speaks [standard A2A](../howto/standard-a2a.md), 1.0 and 0.3, as JSON-RPC and as REST.",
            "What a gateway speaks besides is in [HTTP at the gateway](gateway-http.md).",
            "",
        ]
    )


def _route_names(facts: CardFacts) -> Iterator[str]:
    for route in synapse_dialect(facts).routes:
        yield f"{route.method} {route.path}"


def _settings() -> str:
    defaults = Settings()
    rows = [
        f"| `{name}` | `{getattr(defaults, name)}` | `{PREFIX}{name.upper()}` | "
        f"{'if trusted' if name in FOR_PROJECTS else 'never'} | {text} |"
        for name, text in MEANINGS.items()
    ]
    return "\n".join(
        [
            "# Settings",
            "",
            NOTICE.rstrip(),
            "",
            "Flags win over the environment, then `.synapse/config.toml` of the project, then `synapse/config.toml` in",
            "your config folder (`~/.config`). `synapse config` shows each value and where it comes from. One thing no",
            'variable takes back: `person_proof = "terminal"` in your own file.',
            "",
            "A project decides nothing by itself: its `.synapse/` is ignored until you have",
            "[trusted the folder](../howto/trust-a-project.md). The column *project* says what it may set then. It may",
            "never set places, addresses, rights and what protects you from agents; a line says when it tried.",
            "",
            "The state folder (`home`) and your settings folder must be yours alone: Synapse refuses one that another",
            "user can write to, and one inside the project that you work in.",
            "",
            "| setting | default | variable | project | meaning |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _errors() -> str:
    rows = [
        f"| `{kind.code}` | {_first_line(kind)} | {_statuses(kind)} | {exit_codes.exit_code(kind.code)} |"
        for kind in errors.BY_CODE.values()
    ]
    columns = (
        "code",
        "meaning",
        "HTTP, synapse dialect",
        "A2A 1.0: JSON-RPC, HTTP, reason",
        "A2A 0.3",
        "supervisor",
        "hub",
        "exit code",
    )
    head = f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"
    return f"# Errors\n\n{NOTICE}{head}" + "\n".join(rows) + "\n"


def _statuses(kind: type[errors.SynapseError]) -> str:
    """How each dialect tells it."""
    new, old = error_shape(kind), former_error_shape(kind)
    standard = f"{new.code}, {new.http}, `{new.reason}` | {old.code}, {old.http}"
    supervisor, hub = supervisor_error_shape(kind), hub_error_shape(kind)
    gateway = f"{supervisor.code}, {supervisor.http} | `{hub.code}`, {hub.http}"
    return f"{http_status(kind)} | {standard} | {gateway}"


def _first_line(kind: type[errors.SynapseError]) -> str:
    return (kind.__doc__ or "").partition("\n")[0]


def _exit_codes() -> str:
    rows = [f"| {code} | {meaning} |" for code, meaning in exit_codes.MEANINGS.items()]
    head = "The exit code of `synapse PROFILE` is that of the program. For all else:\n\n| code | meaning |\n|---|---|\n"
    return f"# Exit codes\n\n{NOTICE}{head}" + "\n".join(rows) + "\n"


def _lifecycle() -> str:
    edges = [f"    {state} --> {following}" for state in NEXT_STATES for following in sorted(NEXT_STATES[state])]
    ends = [f"    {state} --> [*]" for state in NEXT_STATES if state.is_terminal]
    diagram = "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> submitted", *edges, *ends, "```"])
    return f"# The lifecycle of a task\n\n{NOTICE}Drawn from the table in `synapse/core/lifecycle.py`.\n\n{diagram}\n"


def main() -> int:
    for path, text in documents().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
