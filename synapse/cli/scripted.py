"""`synapse scripted FILE`: run an agent whose behaviour is a file."""

from __future__ import annotations

from argparse import SUPPRESS
from pathlib import Path

from synapse.cli.person import launch_settings
from synapse.cli.speech import say
from synapse.cli.trust import settings_here
from synapse.cli.verb_parser import VerbParser
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry

EXAMPLES = """
synapse scripted docs/examples/hello.toml
synapse scripted docs/examples/hello.toml --name hello --port 8180
"""


def run(arguments: list[str]) -> int:
    """Play the script until it exits or is told to; return its exit code."""
    parser = VerbParser("scripted", examples=EXAMPLES, json=False)
    parser.add_argument("script", metavar="FILE", help="a script (docs/howto/scripted-agents.md)")
    parser.add_argument("--name", default="", help="a name that `synapse send` accepts")
    parser.add_argument("--port", type=int, help="the TCP port; found by itself if not given")
    # What `synapse start` adds; a script has no terminal, and needs no instructions.
    for hidden in ("--headless", "--no-instructions", "--json"):
        parser.add_argument(hidden, action="store_true", help=SUPPRESS)
    options = parser.parse_args(arguments)
    from synapse.runtime.scripted_agent import run_script

    def introduce(me: AgentEntry) -> None:
        # Whoever starts it in the background is told by `synapse start`.
        if not options.headless:
            name = short_name(me)
            say(f'{name} plays {script.name} on port {me.port}  (Ctrl-C ends it; synapse send {name} "…")')

    script = Path(options.script)
    settings = settings_here(load=launch_settings, asks=not options.headless)
    return run_script(script, name=options.name, port=options.port, settings=settings, introduce=introduce)
