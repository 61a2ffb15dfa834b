"""`synapse completion`: scripts for shells, and the words that these ask for."""

from synapse.cli.completion_words import AGENTS, WORDS_OPTION, word_lines
from synapse.cli.output import print_result


def run_completion(arguments: "list[str]") -> int:
    """Prints or installs a script, or prints words for one, and returns the exit code."""
    if arguments == [AGENTS]:
        # For scripts of earlier versions, which expand every word of the answer: names alone.
        print_result("\n".join(line.partition("\t")[0] for line in word_lines(AGENTS)))
        return 0
    if arguments[:1] == [WORDS_OPTION]:
        print_result("\n".join(line for kind in arguments[1:] for line in word_lines(kind)))
        return 0
    from synapse.cli.completion_scripts import print_or_install

    return print_or_install(arguments)
