"""The command line that the contract names, run as a file: `python3 synapse/tools/a2a.py list` and `… send`."""

import sys

# Python puts the script's folder on the path, not the folder that contains the package.
sys.path[0] = __file__.rpartition("/synapse/tools/")[0] or "/"

from synapse.cli.main import main  # noqa: E402 - importable only after the line above

VERBS = ("list", "send")


def run(argv: "list[str]") -> int:
    """Runs `list` or `send` as `synapse` does; returns the exit code."""
    if len(argv) < 2 or argv[1] not in VERBS:
        sys.stderr.write("usage: a2a.py list\n       a2a.py send --target AGENT [--priority N] MESSAGE\n")
        return 0 if argv[1:2] in (["-h"], ["--help"]) else 2
    return main(argv)


if __name__ == "__main__":
    sys.exit(run(sys.argv))
