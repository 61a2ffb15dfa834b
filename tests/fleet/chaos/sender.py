"""One sender of a chaos run over machines: sends to agents on other machines, repeats, cancels, writes down answers.

    python -m tests.fleet.chaos.sender PLAN LOG          with SYNAPSE_HOME set

As `tests.integration.chaos.sender`, but each message goes through the link, which is asked to keep it.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from synapse.client.link import KEEP, find_remote
from synapse.core.agent import AgentEntry
from synapse.core.errors import SynapseError
from synapse.core.override import override
from tests.integration.chaos.letters import Letter
from tests.integration.chaos.sender import Sender


class RemoteSender(Sender):
    """Sends letters whose targets are `name@machine`."""

    # What a link answers that cannot do it now.
    later: ClassVar = (500, 502, 503, 504)

    @override
    def _body(self, letter: Letter) -> dict[str, Any]:
        body = super()._body(letter)
        body["metadata"][KEEP] = True
        return body

    @override
    def _find(self, name: str) -> AgentEntry | None:
        with suppress(SynapseError):
            return find_remote(name, self._registry, keeps=True)
        return None


if __name__ == "__main__":
    RemoteSender(Path(sys.argv[2])).send_all(Path(sys.argv[1]))
