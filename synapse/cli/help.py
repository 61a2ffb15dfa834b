"""`synapse help`: the overview, and the help of `send` and `reply`, which do not use argparse."""

from synapse.cli.exit_codes import MEANINGS
from synapse.cli.main import VERBS, find_verb
from synapse.cli.output import print_result

USAGE = """\
usage: synapse PROFILE [--name NAME] [--port PORT] [--no-instructions] [--no-mcp] [--resume] [-- ARGUMENTS]
       synapse VERB …
       synapse --version

A profile is a program that runs as an agent: claude, codex, gemini, opencode, copilot, dummy, or your own.
"""

EXAMPLES = """\
examples:
  synapse claude                                 run claude in this terminal, as an agent
  synapse claude --name reviewer -- --continue   with a name, and an argument for claude
  synapse start codex                            run codex in the background
  synapse send codex "review this" --response    wait for the answer and print it
  synapse list                                   list running agents
  synapse attach codex                           open its terminal in this one
"""

SEND = """\
usage: synapse send TARGET MESSAGE… [options]

Sends a message to an agent and returns at once. The message is typed when the agent is ready.
TARGET is a profile (codex), a profile and port (codex-8120), a full id (synapse-codex-8120) or a given name; with a
machine of the fleet, as codex@box2, an agent there.

options:
  --response            ask for a reply, wait for it and print it
  --no-response         do not wait (the default)
  --wait LEVEL          wait until the message is `submitted` (proven) or `answered`; asks for no reply
  --receipt             show each delivery step; alone it waits for `submitted`
  --timeout SECONDS     how long to wait (setting response_timeout)
  --exit-on-wait        stop waiting when the agent waits for a person: print the question, exit code 6
  --priority N          1 to 5 (default 3); 5 interrupts the agent first
  --reply-to ID         reply to the request with this id
  --task ID             continue this task of the agent: answer the input that it asks for (input_required)
  --message-id ID       an agent accepts a message id only once: safe to repeat when no answer came
  --from AGENT          the sender; found automatically inside an agent
  --file FILE, -        read the message from a file, or from standard input; inside an agent only a file in its
                        working folder or the system's folder for temporary files
  --queue               if the agent is not running, queue the message until it starts; if its machine is away, keep it
                        until the machine is back
  --ttl SECONDS         the message expires if it is not delivered by then; for an agent on another machine at
                        most 7 days, and 24 hours without --ttl
  --json                {"task": {…}, "reply": "…" or null, "receipt": "…"}
  --                    the rest is the message

examples:
  synapse send codex "run the tests"
  synapse send codex-8120 "review the diff" --response --timeout 300
  git diff | synapse send claude "please review:" - --response
  synapse send claude "Stop!" --priority 5
  synapse send synapse-claude-8100 "done" --reply-to 54241e7e
  synapse send codex "the second one" --task 54241e7e
  synapse send codex@box2 "run the tests" --response
"""

REPLY = """\
usage: synapse reply TEXT… [options]

Replies to the request that this agent is working on, or to the last one. Works only inside an agent.

options:
  --to ID               reply to the request with this id instead
  --failed              report failure; the text says why
  --file FILE, -        read the text from a file of the working folder or the system's folder for temporary
                        files, or from standard input
  --json                {"replied": {"task_id": "…", "to": "…"}}

examples:
  synapse reply "all tests pass"
  synapse reply --failed "there is no test suite"
  synapse reply --to 54241e7e - < report.md
"""

TEXTS = {"send": SEND, "reply": REPLY}


def run_help(arguments: "list[str]") -> int:
    """Shows the overview, or the help of the named verb."""
    words = [word for word in arguments if not word.startswith("-")]
    if not words or words[0] == "help":
        print_result(overview())
        return 0
    if words[0] in TEXTS:
        return show(words[0])
    return find_verb([words[0], "--help"])()


def show(verb: str) -> int:
    """Shows the help of `send` or `reply`."""
    print_result(TEXTS[verb] + "\n" + exit_code_lines())
    return 0


def overview() -> str:
    """Returns all verbs, examples and exit codes; the last line is for AI agents."""
    verbs = "\n".join(f"  {verb:<12} {summary}" for verb, (_, summary) in VERBS.items())
    return "\n".join(
        [
            USAGE,
            f"verbs (see synapse VERB --help; verbs with a result take --json):\n{verbs}\n",
            EXAMPLES,
            exit_code_lines(),
            "\nAI agents: `synapse guide` prints all you need to send and reply.",
        ]
    )


def exit_code_lines() -> str:
    """Returns the exit codes as text."""
    return "exit codes:\n" + "\n".join(f"  {code:<4} {meaning}" for code, meaning in MEANINGS.items())
