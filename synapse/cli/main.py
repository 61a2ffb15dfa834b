"""The `synapse` command: finds the verb, imports its module, and turns errors into a message and an exit code."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from synapse.core.errors import SynapseError

# Verb → its module in this package, and its summary. A module is imported only when its verb is used.
VERBS = {
    "start": ("start", "start an agent in the background"),
    "stop": ("start", "stop an agent"),
    "restart": ("start", "restart a background agent with its name, port, folder and arguments"),
    "up": ("teams", "bring the agents of a team file up; changes only what differs"),
    "down": ("teams", "take a team down"),
    "ps": ("teams", "show the teams that are up, and how their agents fare"),
    "list": ("agents", "list running agents and what they are doing"),
    "top": ("top", "show all agents live: who needs you, who is doing what"),
    "usage": ("usage", "show what turns cost: tokens, and money where a CLI tells it"),
    "status": ("agents", "show one agent or task; --explain shows the evidence for its state"),
    "attach": ("attach", "open an agent's terminal in this one"),
    "worktrees": ("worktrees", "list the git worktrees of agents, and remove those that nobody needs"),
    "diff": ("worktrees", "show what an agent has changed in its git worktree"),
    "watch": ("watch", "follow the events of tasks"),
    "logs": ("logs", "show an agent's log: starts, states, deliveries, refusals"),
    "send": ("send", "send a message to an agent; --response waits for the answer"),
    "reply": ("reply", "reply to the request that this agent is working on"),
    "ask": ("ask", "ask a person, as an agent, and wait for the answer"),
    "broadcast": ("broadcast", "send a message to all agents in this folder, on this machine only"),
    "queue": ("tasks", "list queued messages"),
    "tasks": ("tasks", "list recent tasks"),
    "show": ("show", "read a task, or an agent's last tasks, like a conversation; export them"),
    "cancel": ("cancel", "cancel a task or a queued message"),
    "approvals": ("approvals", "list what needs a person: questions, messages in doubt, held messages"),
    "approve": ("approvals", "allow what an agent asks permission for"),
    "deny": ("approvals", "deny what an agent asks permission for"),
    "answer": ("approvals", "answer an agent's question"),
    "resolve": ("cancel", "decide about a message that may not have been delivered"),
    "gateway": ("gateway", "serve all agents at one address, for other machines and programs"),
    "link": ("link", "run this machine's link to its fleet; `fleet join` starts it in the background"),
    "service": ("service", "run the gateway, the link or a team as a systemd service: install, status, uninstall"),
    "fleet": (
        "fleet",
        "connect machines: create, invite, join, status, outbox, allow, leave, remove, start, stop, doctor",
    ),
    "dashboard": ("dashboard", "open the dashboard in a browser; list and revoke its sessions"),
    "external": ("external", "manage external agents: add, list, send, cancel, remove"),
    "push": ("push", "list push notifications and their deliveries"),
    "notify": ("notify", "try the notices outside of the terminal, and list those that were sent"),
    "keys": ("keys", "manage API keys of the gateway: create, list, revoke"),
    "mcp": ("mcp", "serve the tools for AI agents over MCP; config, install, uninstall"),
    "scripted": ("launch", "run an agent that plays a script file"),
    "trust": ("trust", "trust the `.synapse/` settings of a project"),
    "config": ("doctor", "show the settings and where each value comes from"),
    "doctor": ("doctor", "check this machine and suggest fixes"),
    "calibrate": ("calibrate", "check with a scripted model that Synapse reads a CLI correctly"),
    "demo": ("demo", "let two built-in agents talk; needs no AI tool"),
    "completion": ("completion", "print a completion script for bash, zsh or fish"),
    "guide": ("guide", "print a short primer for AI agents"),
    "help": ("help", "show this text, or the help of a verb"),
}
FAST_VERBS = (["send"], ["reply"], ["mcp"])
HOST_VERBS = ("gateway", "scripted")
"""Verbs that `synapse start` knows too: a profile with such a name can only be renamed."""
CLOSED_PIPE = 141


def run_process() -> "NoReturn":
    """Runs `main` and ends the process: the entry point of the `synapse` script."""
    code = main(sys.argv)
    if sys.argv[1:2] in FAST_VERBS:
        # All output is flushed; tearing down the interpreter would make each of these frequent runs a tenth slower.
        import os

        os._exit(code)
    sys.exit(code)


def main(argv: "list[str]") -> int:
    """Runs the command line `argv` and returns the exit code."""
    arguments = argv[1:]
    try:
        return find_verb(arguments)()
    except KeyboardInterrupt:
        from synapse.cli.exit_codes import INTERRUPTED

        return INTERRUPTED
    except BrokenPipeError:
        return _discard_output()
    except _expected_errors() as error:
        return _report(error, as_json=wants_json(arguments))
    except ExceptionGroup as errors:
        # A host runs its parts in a TaskGroup; an expected error of any part is printed like any other.
        first = _first_leaf(errors)
        if not isinstance(first, _expected_errors()):
            raise
        return _report(first, as_json=wants_json(arguments))


def _report(error: "SynapseError | OSError", *, as_json: bool) -> int:
    """Prints the error and returns the exit code; falls back to stderr when stdout cannot be written."""
    from synapse.cli.output import print_error

    try:
        return print_error(error, as_json=as_json)
    except OSError:
        return print_error(error, as_json=False)


def _first_leaf(errors: "BaseExceptionGroup[BaseException]") -> BaseException:
    first: BaseException = errors
    while inner := getattr(first, "exceptions", ()):
        first = inner[0]
    return first


def _expected_errors() -> "tuple[type[SynapseError], type[OSError]]":
    """Returns the errors that a verb may raise. Called only after an error: the error classes are slow to load."""
    from synapse.core.errors import SynapseError

    return SynapseError, OSError


def find_verb(arguments: "list[str]") -> "Callable[[], int]":
    """Returns the function that runs the verb; a word that is not a verb names a profile."""
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if verb in ("-h", "--help"):
        verb = "help"
    if verb in ("-V", "--version"):
        return _show_version
    # A host that `synapse start PROFILE` has started: nobody else gives this option first.
    is_profile = rest[:1] == ["--headless"] and verb not in HOST_VERBS
    if verb in VERBS and not is_profile:
        if [verb] not in FAST_VERBS:  # about which only `doctor` warns
            _warn_of_profile(verb)
        run = _load(VERBS[verb][0], verb)
        return lambda: run(rest)
    run = _load("launch", "profile")
    return lambda: run(arguments)


def _warn_of_profile(verb: str) -> None:
    """Prints how to start a profile of the user that has the name of this verb, if there is one."""
    import os

    from synapse.config.paths import own_profile

    try:
        file = own_profile(verb, os.environ, os.getcwd())
    except OSError:
        return  # the folder was deleted: then there is no project
    if file:
        from synapse.cli.output import print_notice

        print_notice(f"`{verb}` is a verb, and the name of the profile {file}: {way_to_profile(verb)}")


def way_to_profile(verb: str) -> str:
    """Returns how to start a profile that has the name of a verb."""
    if verb in HOST_VERBS:
        return "rename the profile to start it"
    return f"`synapse start {verb}` starts the profile"


def wants_json(arguments: "list[str]") -> bool:
    """Returns whether to print errors as JSON; arguments after `--` belong to the agent's program."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


def _load(module: str, verb: str) -> "Callable[[list[str]], int]":
    # Not importlib: loading it would take `synapse send` longer than finding the module.
    name = f"run_{verb}"
    run: Callable[[list[str]], int] = getattr(__import__(f"synapse.cli.{module}", fromlist=[name]), name)
    return run


def _show_version() -> int:
    from synapse import __version__
    from synapse.cli.output import print_result

    print_result(f"synapse {__version__}")
    return 0


def _discard_output() -> int:
    """Redirects stdout to /dev/null: its reader has gone (`| head`), and the last flush must not fail."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED_PIPE


if __name__ == "__main__":
    run_process()
