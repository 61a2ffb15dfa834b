"""The `synapse` command: finds the verb, imports its module, and turns errors into a sentence and an exit code."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from synapse.core.errors import SynapseError

# Verb → its module in this folder, and what it does. A module is imported when its verb is typed, and not before.
VERBS = {
    "start": ("start", "start an agent in the background"),
    "stop": ("start", "end an agent"),
    "restart": ("start", "end a background agent and start it again as it was"),
    "list": ("agents", "who is here, and what they do"),
    "status": ("agents", "one agent or task in detail; --explain says how its state is known"),
    "attach": ("attach", "look at an agent's terminal and type into it"),
    "watch": ("watch", "what happens to tasks, while it happens"),
    "logs": ("logs", "what happened to an agent: starts, states, deliveries, refusals"),
    "send": ("send", "leave a message with an agent; --response waits for the answer"),
    "reply": ("reply", "answer the request that this agent works on"),
    "broadcast": ("broadcast", "send a message to all agents of this folder"),
    "queue": ("tasks", "what waits for the agents"),
    "tasks": ("tasks", "what was sent lately, and what became of it"),
    "cancel": ("cancel", "stop a task, or take a queued message back"),
    "approvals": ("approvals", "what all agents need a person for: questions, doubts, messages that are held"),
    "approve": ("approvals", "allow what an agent asks for"),
    "deny": ("approvals", "turn down what an agent asks for"),
    "answer": ("approvals", "answer what an agent wants to know"),
    "resolve": ("cancel", "decide about a message in doubt"),
    "gateway": ("gateway", "one address for all agents, for other machines and programs"),
    "external": ("external", "agents elsewhere: add, list, send, cancel, remove"),
    "push": ("push", "what became of push notifications"),
    "keys": ("keys", "API keys for the gateway: create, list, revoke"),
    "scripted": ("launch", "run an agent whose behaviour is a file"),
    "trust": ("trust", "projects whose `.synapse/` may decide what is run"),
    "config": ("doctor", "the settings, and where each value comes from"),
    "doctor": ("doctor", "check this machine, and say what to do"),
    "calibrate": ("calibrate", "check against a real CLI and a scripted model that its state is seen rightly"),
    "demo": ("demo", "two built-in agents talk; no AI tool needed"),
    "completion": ("completion", "a completion script for bash, zsh or fish"),
    "guide": ("guide", "a short primer for AI readers"),
    "help": ("help", "this text, or the help of a verb"),
}
QUICK = (["send"], ["reply"])
CLOSED_PIPE = 141


def run_process() -> "NoReturn":
    """What the `synapse` script does: `main`, then the end of the process."""
    code = main(sys.argv)
    if sys.argv[1:2] in QUICK:
        # They have said and flushed all; taking the interpreter apart would add a tenth to each of their many runs.
        import os

        os._exit(code)
    sys.exit(code)


def main(argv: "list[str]") -> int:
    """Do what `argv` says and return the exit code."""
    arguments = argv[1:]
    try:
        return find_verb(arguments)()
    except KeyboardInterrupt:
        from synapse.cli.exit_codes import INTERRUPTED

        return INTERRUPTED
    except BrokenPipeError:
        return _leave_quietly()
    except _foreseen() as error:
        return _complain(error, as_json=wants_json(arguments))
    except ExceptionGroup as errors:
        # A host runs its parts in a group; what any of them foresaw is said as a sentence too.
        first = _first(errors)
        if not isinstance(first, _foreseen()):
            raise
        return _complain(first, as_json=wants_json(arguments))


def _complain(error: "SynapseError | OSError", *, as_json: bool) -> int:
    """Say what went wrong: on stderr as well when the output, where it belongs, cannot be written."""
    from synapse.cli.output import print_error

    try:
        return print_error(error, as_json=as_json)
    except OSError:
        return print_error(error, as_json=False)


def _first(errors: "BaseExceptionGroup[BaseException]") -> BaseException:
    first: BaseException = errors
    while inner := getattr(first, "exceptions", ()):
        first = inner[0]
    return first


def _foreseen() -> "tuple[type[SynapseError], type[OSError]]":
    """What a verb may raise. Asked for only when something was raised: the tree of errors is costly to load."""
    from synapse.core.errors import SynapseError

    return SynapseError, OSError


def find_verb(arguments: "list[str]") -> "Callable[[], int]":
    """Return what is to be done; a word that is no verb is the name of a profile."""
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if verb in ("-h", "--help"):
        verb = "help"
    if verb in ("-V", "--version"):
        return _show_version
    if verb in VERBS:
        run = _load(VERBS[verb][0], verb)
        return lambda: run(rest)
    run = _load("launch", "profile")
    return lambda: run(arguments)


def wants_json(arguments: "list[str]") -> bool:
    """Whether errors are wanted as JSON; what follows `--` belongs to somebody else."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


def _load(module: str, verb: str) -> "Callable[[list[str]], int]":
    # Not importlib: loading it would cost `synapse send` more than finding the module does.
    name = f"run_{verb}"
    run: Callable[[list[str]], int] = getattr(__import__(f"synapse.cli.{module}", fromlist=[name]), name)
    return run


def _show_version() -> int:
    from synapse import __version__
    from synapse.cli.output import print_result

    print_result(f"synapse {__version__}")
    return 0


def _leave_quietly() -> int:
    """The reader of our output has left, as `head` does; the interpreter must not fail on its last flush."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED_PIPE


if __name__ == "__main__":
    run_process()
