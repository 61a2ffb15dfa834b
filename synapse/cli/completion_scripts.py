"""The completion scripts for bash, zsh and fish, and their installation where each shell looks for them."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path

from synapse.cli.completion_words import (
    AGENTS,
    OPEN_TASKS,
    REMOTE_AGENTS,
    TAKE_AGENTS,
    TAKE_OPEN_TASKS,
    TAKE_PROFILES,
    TAKE_REMOTE_AGENTS,
    TAKE_TASKS,
    TASKS,
    WORDS_OPTION,
)
from synapse.cli.exit_codes import DONE
from synapse.cli.main import VERBS, find_verb
from synapse.cli.output import print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.client.lines import plain, short_path
from synapse.config.private_files import make_folders
from synapse.config.settings import load_settings, profile_names
from synapse.core.errors import Conflict, InvalidRequest

EXAMPLES = """
synapse completion --install                    for the shell of this account
synapse completion --install zsh
source <(synapse completion bash)               or without a file, in ~/.bashrc
source <(synapse completion zsh)                in ~/.zshrc
"""
SHELLS = ("bash", "zsh", "fish")
MARKER = "# Written by `synapse completion`"
"""The first or second line of a script of ours."""
BASH = """\
%(marker)s
_synapse_words() {
  local line
  synapse completion --words "$@" 2>/dev/null | while IFS= read -r line; do printf '%%s\\n' "${line%%%%$'\\t'*}"; done
}
_synapse() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=""
  # The name of an agent on another machine, codex@box2, is several words for bash.
  local whole=${COMP_LINE:0:${COMP_POINT:-0}}
  whole=${whole##*[[:space:]]}
  [[ $whole == ?*@* ]] || whole=$word
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="%(first)s"
  elif [[ $word == -* ]]; then
    case ${COMP_WORDS[1]} in
%(options)s
    esac
  elif [ "$before" = --task ]; then
    words=$(_synapse_words tasks)
  else
    case $COMP_CWORD:${COMP_WORDS[1]} in
%(actions)s
%(words)s
      *:%(profile_verbs)s) words="%(profiles)s" ;;
      2:completion) words="%(shells)s" ;;
      2:help) words="%(verbs)s" ;;
      3:service) words="gateway link team" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$whole"))
  [ "$whole" = "$word" ] || COMPREPLY=("${COMPREPLY[@]#*@}")
}
complete -o default -F _synapse synapse
"""
ZSH = """\
#compdef synapse
%(marker)s
_synapse_words() {
  local -a found
  local line
  for line in ${(f)"$(synapse completion --words "$@" 2>/dev/null)"}; do
    found+=("${${line%%%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
  done
  _describe -t words word found
}
_synapse() {
  local -a found
  if (( CURRENT == 2 )); then
    found=(
%(described)s
    )
    _describe -t verbs verb found
    compadd -X profile -- %(profiles)s
  elif [[ $PREFIX == -* ]]; then
    case $words[2] in
%(options)s
    esac
    compadd -- $found
  elif [[ $words[CURRENT-1] == --task ]]; then
    _synapse_words tasks
  else
    case $((CURRENT - 1)):$words[2] in
%(actions)s
%(words)s
      *:(%(profile_verbs)s)) compadd -- %(profiles)s ;;
      2:completion) compadd -- %(shells)s ;;
      2:help) compadd -- %(verbs)s ;;
      3:service) compadd -- gateway link team ;;
      *) _files ;;
    esac
  fi
}
if [ "$funcstack[1]" = _synapse ]; then
  _synapse "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
  compdef _synapse synapse
fi
"""
ACTIONS = {"dashboard": ["sessions", "revoke"], "worktrees": ["remove"]}
"""The actions of verbs whose help does not list them."""


def print_or_install(arguments: list[str]) -> int:
    """Prints a script, or installs it for the shell of the account; returns the exit code."""
    parser = VerbParser("completion", examples=EXAMPLES, json=False)
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="bash, zsh or fish")
    parser.add_argument("--install", action="store_true", help="write the script to where the shell looks for it")
    options = parser.parse_args(arguments)
    if options.install:
        return _install(options.shell or _own_shell())
    if not options.shell:
        parser.error("name a shell: bash, zsh or fish")
    print_result(SCRIPTS[options.shell]().rstrip("\n"))
    return DONE


def _own_shell() -> str:
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        known = "SHELL is not set" if not shell else f"there is no script for {plain(shell)}"
        raise InvalidRequest(f"{known}; name bash, zsh or fish", hint="synapse completion --install bash")
    return shell


def _install(shell: str) -> int:
    path = script_path(shell, os.environ)
    try:
        known = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        known = MARKER
    if MARKER not in known[:200]:
        raise Conflict(
            f"{path} was not written by Synapse, and stays as it is", hint=f"move it away: mv {path} {path}.mine"
        )
    make_folders(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(SCRIPTS[shell](), encoding="utf-8")
    draft.replace(path)
    print_notice(f"Wrote {plain(short_path(str(path)))}; no other file was changed. Again after an upgrade, please.")
    for line in _next_steps(shell, path):
        print_notice(line)
    return DONE


def _next_steps(shell: str, path: Path) -> list[str]:
    place = short_path(str(path))
    match shell:
        case "bash":
            return [
                "Open a new shell. It is read by the package bash-completion;",
                f"without that, put this line into ~/.bashrc:  source {place}",
            ]
        case "zsh":
            return [
                "Put this line into ~/.zshrc, before compinit, and open a new shell:",
                f"  fpath=({short_path(str(path.parent))} $fpath)",
            ]
        case _:
            return ["Open a new shell: fish reads it by itself."]


def outdated_scripts() -> list[tuple[str, Path]]:
    """Returns the shells whose installed scripts of ours are not what would be installed now, with their paths."""
    found: list[tuple[str, Path]] = []
    for shell in SHELLS:
        path = script_path(shell, os.environ)
        try:
            known = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if MARKER in known[:200] and known != SCRIPTS[shell]():
            found.append((shell, path))
    return found


def script_path(shell: str, environ: Mapping[str, str]) -> Path:
    """Returns where the shell, or its package of completions, looks for the script of a user."""
    data = Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    config = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    bash = Path(environ.get("BASH_COMPLETION_USER_DIR") or data / "bash-completion")
    return {
        "bash": bash / "completions" / "synapse",
        "zsh": data / "zsh" / "site-functions" / "_synapse",
        "fish": config / "fish" / "completions" / "synapse.fish",
    }[shell]


def bash_script() -> str:
    """Returns the script for bash."""
    return BASH % _parts(
        option_case=lambda verb, options: f'      {verb}) words="{" ".join(options)}" ;;',
        action_case=lambda verb, actions: f'      2:{verb}) words="{" ".join(actions)}" ;;',
        word_case=lambda verbs, kinds: f"      *:{'|*:'.join(verbs)}) words=$(_synapse_words {kinds}) ;;",
    )


def zsh_script() -> str:
    """Returns the script for zsh: to be read by a shell, or found in its fpath."""
    return ZSH % _parts(
        option_case=lambda verb, options: f"      {verb}) found=({' '.join(options)}) ;;",
        action_case=lambda verb, actions: f"      2:{verb}) compadd -- {' '.join(actions)} ;;",
        word_case=lambda verbs, kinds: f"      *:({'|'.join(verbs)})) _synapse_words {kinds} ;;",
    )


def _parts(
    *,
    option_case: Callable[[str, list[str]], str],
    action_case: Callable[[str, list[str]], str],
    word_case: Callable[[list[str], str], str],
) -> dict[str, str]:
    profiles = _profiles()
    return {
        "marker": MARKER,
        "first": " ".join([*VERBS, *profiles]),
        "described": "\n".join(f"      {_in_quotes(f'{verb}:{text}')}" for verb, (_, text) in VERBS.items()),
        "options": "\n".join(option_case(verb, options_of(verb)) for verb in VERBS),
        "actions": "\n".join(action_case(verb, actions) for verb in VERBS if (actions := actions_of(verb))),
        "words": "\n".join(word_case(verbs, kinds) for kinds, verbs in _verbs_by_words().items()),
        "profile_verbs": "|".join(TAKE_PROFILES),
        "profiles": " ".join(profiles),
        "verbs": " ".join(VERBS),
        "shells": " ".join(SHELLS),
    }


def fish_script() -> str:
    """Returns the script for fish."""
    lines = [MARKER, "complete -c synapse -f"]
    for verb, (_, summary) in VERBS.items():
        lines.append(f"complete -c synapse -n __fish_use_subcommand -a {verb} -d {_in_quotes(summary)}")
        lines += [f"{_fish_after(verb)} -l {option.removeprefix('--')}" for option in options_of(verb)]
        if actions := actions_of(verb):
            lines.append(f"{_fish_after(verb)} -a '{' '.join(actions)}'")
    profiles = " ".join(_profiles())
    lines.append(f"complete -c synapse -n __fish_use_subcommand -a '{profiles}' -d profile")
    lines.append(f"{_fish_after(*TAKE_PROFILES)} -a '{profiles}'")
    lines.append(f"{_fish_after('completion')} -a '{' '.join(SHELLS)}'")
    # -k: the latest task first, as they come.
    lines += [
        f"{_fish_after(*verbs)} -k -a '(synapse completion {WORDS_OPTION} {kinds} 2>/dev/null)'"
        for kinds, verbs in _verbs_by_words().items()
    ]
    return "\n".join(lines) + "\n"


def _fish_after(*verbs: str) -> str:
    return f"complete -c synapse -n '__fish_seen_subcommand_from {' '.join(verbs)}'"


def _in_quotes(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _verbs_by_words() -> dict[str, list[str]]:
    """Returns the verbs that take agents or tasks, by what `synapse completion` is asked for."""
    takers: Iterable[tuple[str, tuple[str, ...]]] = (
        (AGENTS, TAKE_AGENTS),
        (REMOTE_AGENTS, TAKE_REMOTE_AGENTS),
        (TASKS, TAKE_TASKS),
        (OPEN_TASKS, TAKE_OPEN_TASKS),
    )
    found: dict[str, list[str]] = {}
    for verb in VERBS:
        kinds = " ".join(kind for kind, verbs in takers if verb in verbs)
        if kinds:
            found.setdefault(kinds, []).append(verb)
    return found


def _profiles() -> list[str]:
    """Returns the built-in profiles and the user's. Not the project's: the script is used in every folder."""
    return profile_names([source for source in load_settings().profile_sources if isinstance(source, Path)])


def options_of(verb: str) -> list[str]:
    """Returns the long options of a verb, read from its help."""
    return sorted(set(re.findall(r"^  (?:-\w(?: [A-Z]+)?, )?(--[a-z][a-z-]+)", _help_of(verb), re.MULTILINE)))


def actions_of(verb: str) -> list[str]:
    """Returns the actions of a verb, as of `synapse keys create`, read from its help."""
    if verb in ACTIONS:
        return ACTIONS[verb]
    _, listed, rest = _help_of(verb).partition("\n  ACTION\n")
    return re.findall(r"^    ([a-z]+)(?:  |$)", rest.partition("\n\n")[0], re.MULTILINE) if listed else []


@cache
def _help_of(verb: str) -> str:
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    # argparse exits after it has printed the help.
    with redirect_stdout(output), suppress(SystemExit):
        find_verb([verb, "--help"])()
    output.seek(0)
    return output.read()


SCRIPTS: Mapping[str, Callable[[], str]] = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
