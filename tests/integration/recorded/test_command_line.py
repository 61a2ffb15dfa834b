"""The words of the command line: each verb and sub-verb with its options, as `--help` names them.

docs/reference/cli.md holds the whole help of every verb, sentences included, and tests/architecture compares it. Here
is what scripts of users depend on: usage and options alone, also of sub-verbs, so that sentences may be written better.
How to record anew: see golden.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.recorded.golden import check
from tests.integration.recorded.product import Product, product

pytestmark = pytest.mark.integration

SUB_VERBS = {
    "external": ("add", "list", "send", "cancel", "remove"),
    "push": ("list",),
    "keys": ("create", "list", "revoke"),
}


@pytest.fixture(scope="module")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with product(tmp_path_factory.mktemp("c")) as made:
        yield made


def test_every_verb_takes_the_words_that_it_took(synapse: Product) -> None:
    helped = synapse.run("--help").out
    verbs = re.findall(r"^  (\w+) {2,}", helped.partition("verbs")[2].partition("examples:")[0], re.MULTILINE)
    words = [[verb] for verb in verbs if verb != "help"]
    words += [[verb, inner] for verb, inners in SUB_VERBS.items() for inner in inners]
    assert len(verbs) > 30

    with ThreadPoolExecutor(2) as pool:
        helps = list(pool.map(lambda one: synapse.run(*one, "--help"), words))

    assert {one.code for one in helps} == {0}
    said = [f"== synapse {' '.join(one)}\n{words_of(ran.out)}" for one, ran in zip(words, helps, strict=True)]
    check("cli/verbs.txt", f"== synapse\n{words_of(helped)}" + "".join(said))


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
