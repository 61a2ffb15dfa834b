"""External agents for a process that runs no host: the command line adds, lists and calls them by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from synapse.registries.externals import FileExternalBook
from synapse.runtime.ids import new_id
from synapse.runtime.system_clock import SystemClock
from synapse.service.externals import Externals
from synapse.transports.a2a_client import A2AClient

FOLDER: Final = "external"


def open_externals(home: Path) -> Externals:
    """The external agents whose files lie under the state folder `home`."""
    clock = SystemClock()
    return Externals(FileExternalBook(home / FOLDER), A2AClient(clock), clock, new_id)
