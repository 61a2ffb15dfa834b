"""`synapse completion`: scripts for shells, and the words that these ask for."""

from synapse.cli.completion_words import WORDS, word_lines
from synapse.cli.output import print_result


def run_completion(arguments: "list[str]") -> int:
    """Prints or installs a script, or prints words for one, and returns the exit code."""
    if arguments and set(arguments) <= set(WORDS):
        print_result("\n".join(line for kind in arguments for line in word_lines(kind)))
        return 0
    from synapse.cli.completion_scripts import print_or_install

    return print_or_install(arguments)
