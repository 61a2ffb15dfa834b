"""`synapse completion`: prints scripts that complete verbs, profiles, options and the names of running agents."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout, suppress
from pathlib import Path

from synapse.cli.main import VERBS, find_verb
from synapse.cli.output import print_result
from synapse.cli.parser import VerbParser
from synapse.client.hosts import open_registry
from synapse.config.settings import PROFILE_NAME, load_settings, profile_names
from synapse.core.address import short_name

EXAMPLES = """
source <(synapse completion bash)                                            in ~/.bashrc
source <(synapse completion zsh)                                             in ~/.zshrc
synapse completion fish > ~/.config/fish/completions/synapse.fish
"""
TAKE_AGENTS = (
    "answer",
    "approve",
    "attach",
    "deny",
    "diff",
    "logs",
    "queue",
    "restart",
    "send",
    "status",
    "stop",
    "tasks",
)
TAKE_PROFILES = ("start",)

BASH = """\
_synapse() {
  local word=${COMP_WORDS[COMP_CWORD]} words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="%(first)s"
  elif [[ $word == -* ]]; then
    case ${COMP_WORDS[1]} in
%(option_cases)s
    esac
  else
    case ${COMP_WORDS[1]} in
      %(agent_verbs)s) words=$(synapse completion agents 2>/dev/null) ;;
      %(profile_verbs)s) words="%(profiles)s" ;;
      completion) words="bash zsh fish" ;;
      dashboard) words="sessions revoke" ;;
      external) words="add list send cancel remove" ;;
      mcp) words="config" ;;
      worktrees) words="remove" ;;
      help) words="%(verbs)s" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _synapse synapse
"""
ZSH_HEAD = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def run_completion(arguments: list[str]) -> int:
    """Prints a script, or the agents' names for a script, and returns the exit code."""
    parser = VerbParser("completion", examples=EXAMPLES, json=False)
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "agents"), help="`agents` is for the scripts")
    shell = parser.parse_args(arguments).shell
    if shell == "agents":
        names = {name for entry in open_registry().entries() for name in (short_name(entry), entry.agent_type)}
        # Shells expand completion words, so only safe names are printed.
        print_result("\n".join(sorted(name for name in names if PROFILE_NAME.fullmatch(name))))
    elif shell == "fish":
        print_result(fish_script())
    else:
        print_result((ZSH_HEAD if shell == "zsh" else "") + bash_script())
    return 0


def bash_script() -> str:
    """Returns the script for bash; zsh reads it with bashcompinit."""
    profiles = _profiles()
    cases = [f'      {verb}) words="{" ".join(options_of(verb))}" ;;' for verb in VERBS]
    return BASH % {
        "first": " ".join([*VERBS, *profiles]),
        "option_cases": "\n".join(cases),
        "agent_verbs": "|".join(TAKE_AGENTS),
        "profile_verbs": "|".join(TAKE_PROFILES),
        "profiles": " ".join(profiles),
        "verbs": " ".join(VERBS),
    }


def fish_script() -> str:
    """Returns the script for fish."""
    lines = ["complete -c synapse -f"]
    for verb, (_, summary) in VERBS.items():
        quoted = summary.replace("'", "\\'")
        lines.append(f"complete -c synapse -n __fish_use_subcommand -a {verb} -d '{quoted}'")
        lines += [
            f"complete -c synapse -n '__fish_seen_subcommand_from {verb}' -l {option.removeprefix('--')}"
            for option in options_of(verb)
        ]
    profiles = " ".join(_profiles())
    lines.append(f"complete -c synapse -n __fish_use_subcommand -a '{profiles}' -d profile")
    lines.append(f"complete -c synapse -n '__fish_seen_subcommand_from {' '.join(TAKE_PROFILES)}' -a '{profiles}'")
    agents = "(synapse completion agents 2>/dev/null)"
    lines.append(f"complete -c synapse -n '__fish_seen_subcommand_from {' '.join(TAKE_AGENTS)}' -a '{agents}'")
    return "\n".join(lines)


def _profiles() -> list[str]:
    """Returns the built-in profiles and the user's. Not the project's: the script is used in every folder."""
    return profile_names([source for source in load_settings().profile_sources if isinstance(source, Path)])


def options_of(verb: str) -> list[str]:
    """Returns the long options of a verb, read from its help."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    # argparse exits after it has printed the help.
    with redirect_stdout(output), suppress(SystemExit):
        find_verb([verb, "--help"])()
    output.seek(0)
    return sorted(set(re.findall(r"^  (?:-\w(?: [A-Z]+)?, )?(--[a-z][a-z-]+)", output.read(), re.MULTILINE)))
