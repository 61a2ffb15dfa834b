"""`synapse help`: the overview, and the help of `send` and `reply`, which have no argparse to write it for them."""

from synapse.cli.exit_codes import MEANINGS
from synapse.cli.main import VERBS, find_verb
from synapse.cli.output import print_result

USAGE = """\
usage: synapse PROFILE [--name NAME] [--port PORT] [--no-instructions] [-- ARGUMENTS]
       synapse VERB …
       synapse --version

A profile is a program that is run as an agent: claude, codex, gemini, opencode, copilot, dummy, or your own.
"""

EXAMPLES = """\
examples:
  synapse claude                                 this terminal, exactly as without Synapse, and now an agent
  synapse claude --name reviewer -- --resume     with a name, and an argument for claude
  synapse start codex                            in the background
  synapse send codex "review this" --response    wait for the answer and print it
  synapse list                                   who is here
  synapse attach codex                           look at it and type into it
"""

SEND = """\
usage: synapse send TARGET MESSAGE… [options]

Leaves a message with an agent and returns at once. It is typed when the agent is ready.
TARGET is a profile (codex), a profile and port (codex-8120), a full id (synapse-codex-8120) or a given name.

options:
  --response            ask for a reply, wait for it and print it
  --no-response         do not wait (the default)
  --wait LEVEL          wait until the message is `submitted` (proven) or `answered`, without asking for a reply
  --receipt             show each step of the message's way; alone it waits for `submitted`
  --timeout SECONDS     how long to wait (setting response_timeout)
  --exit-on-wait        stop waiting when the agent waits for a person: exit code 6, and what is asked is printed
  --priority N          1 to 5, 3 if not given; 5 interrupts the agent first
  --reply-to ID         answer the request with this id
  --task ID             go on with this task of the agent: the answer to what it asks (input_required)
  --message-id ID       an agent takes a message id once: safe to repeat when no answer came
  --from AGENT          who sends; found by itself inside an agent
  --file FILE, -        take the message from a file, or from standard input
  --queue               if the agent does not run, leave the message for when it starts
  --ttl SECONDS         the message expires if it is not delivered by then
  --json                {"task": {…}, "reply": "…" or null, "receipt": "…"}
  --                    everything after it is the message

examples:
  synapse send codex "run the tests"
  synapse send codex-8120 "review the diff" --response --timeout 300
  git diff | synapse send claude "please review:" - --response
  synapse send claude "Stop!" --priority 5
  synapse send synapse-claude-8100 "done" --reply-to 54241e7e
  synapse send codex "the second one" --task 54241e7e
"""

REPLY = """\
usage: synapse reply TEXT… [options]

Answers the request that this agent works on, or the last one; works only inside an agent.

options:
  --to ID               answer the request with this id instead
  --failed              say that it could not be done; the text says why
  --file FILE, -        take the text from a file, or from standard input
  --json                {"replied": {"task_id": "…", "to": "…"}}

examples:
  synapse reply "all tests pass"
  synapse reply --failed "there is no test suite"
  synapse reply --to 54241e7e - < report.md
"""

TEXTS = {"send": SEND, "reply": REPLY}


def run_help(arguments: "list[str]") -> int:
    """Show the overview, or the help of the verb that is named."""
    words = [word for word in arguments if not word.startswith("-")]
    if not words or words[0] == "help":
        print_result(overview())
        return 0
    if words[0] in TEXTS:
        return show(words[0])
    return find_verb([words[0], "--help"])()


def show(verb: str) -> int:
    """Show the help of `send` or `reply`."""
    print_result(TEXTS[verb] + "\n" + exit_code_lines())
    return 0


def overview() -> str:
    """All verbs, some examples, the exit codes; the last line is for AI readers."""
    verbs = "\n".join(f"  {verb:<12} {summary}" for verb, (_, summary) in VERBS.items())
    return "\n".join(
        [
            USAGE,
            f"verbs (synapse VERB --help tells more; all take --json where they have a result):\n{verbs}\n",
            EXAMPLES,
            exit_code_lines(),
            "\nAI agents: `synapse guide` prints all you need to send and reply.",
        ]
    )


def exit_code_lines() -> str:
    """The exit codes as text."""
    return "exit codes:\n" + "\n".join(f"  {code:<4} {meaning}" for code, meaning in MEANINGS.items())
