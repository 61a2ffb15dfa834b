"""The words of the command line: each verb and sub-verb with its options, as `--help` names them.

docs/reference/cli.md holds the whole help of every verb, sentences included, and tests/architecture compares it with
the code. Here is what scripts of users depend on: usage and options alone, taken from there, and those of sub-verbs, so
that sentences may be written better. How to record anew: see golden.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.integration.recorded.golden import ROOT, check
from tests.integration.recorded.product import Product, product

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with product(tmp_path_factory.mktemp("c")) as made:
        yield made


def test_every_verb_takes_the_words_that_it_took() -> None:
    document = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    helps = re.findall(r"^#+ (.+?)$[^`]*```text\n(.*?)^```", document, re.MULTILINE | re.DOTALL)
    assert len(helps) > 60

    check("cli/verbs.txt", "".join(f"== {title}\n{words_of(text)}" for title, text in helps))


def test_the_document_says_what_the_command_says(synapse: Product) -> None:
    document = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")

    for arguments in ([], ["approve"], ["fleet", "join"]):
        ran = synapse.run(*arguments, "--help")
        assert ran.code == 0
        assert "\n".join(line.rstrip() for line in ran.out.rstrip().splitlines()) in document


def words_of(text: str) -> str:
    """The usage and the options of a help text, without what is explained."""
    usage = re.search(r"^usage:.*(?:\n {7,}\S.*)*", text, re.MULTILINE)
    assert usage, text
    listed = re.findall(r"^  (-{1,2}\S.*?|[A-Z|]+|\w+)(?: {2,}.*)?$", text.partition("examples:")[0], re.MULTILINE)
    return re.sub(r"\s+", " ", usage[0]) + "\n" + "".join(f"  {one}\n" for one in listed)


def test_a_shell_completes_what_it_completed(synapse: Product) -> None:
    ran = synapse.run("completion", "bash")

    assert ran.code == 0
    check("cli/completion.bash", ran.out)


def test_the_program_tells_its_version(synapse: Product) -> None:
    ran = synapse.run("--version")

    assert ran.code == 0
    assert re.fullmatch(r"synapse \d+\.\d+\.\d+\S*\n", ran.out)
