"""What people see of agents and tasks: the overview of a gateway and its changes, a terminal's screen, a timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from synapse.core.events import Recorded, Update
from synapse.core.message import Json
from synapse.core.task import Task

RunStyle = Mapping[str, int | str]
"""What is not as usual: `fg` and `bg` (a number of the palette, or `#rrggbb`), `b` bold, `i` italic, `u` underlined,
`d` faint, `r` inverse, `s` struck."""


class Run(NamedTuple):
    """Neighbouring cells of a terminal's row with one style."""

    text: str
    style: RunStyle = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StyledScreen:
    """The result of GetScreen: what a terminal shows at one moment, preceded by the lines of scrollback asked for."""

    version: str
    """Another one whenever the terminal may show something else."""
    columns: int
    rows: int
    cursor: tuple[int, int] | None
    """The index of its line in `lines`, and its column; None if it is hidden."""
    alternate: bool
    title: str
    lines: tuple[tuple[Run, ...], ...]
    """The last `rows` of them are the screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The agents of a gateway as people see them: a row of `client.overview` for each, in its order."""

    rows: tuple[Json, ...]
    cursor: int
    """The seq after which WatchOverview continues from here without a gap."""
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOverview:
    """The result of GetAgentOverview: the agent's row, and its host's status with the last finished tasks."""

    row: Json
    status: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanged:
    """A row of the overview has changed, or is new."""

    row: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRemoved:
    """An agent has left the overview; `agent` is the id of its row."""

    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsMissed:
    """Too many events were missed to send them all; those after `cursor` follow."""

    cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAlive:
    """The stream still works, and has sent all events up to `cursor` that its reader may see."""

    at: datetime
    cursor: int


OverviewUpdate = Overview | RowChanged | RowRemoved | Update | EventsMissed | StreamAlive
"""An item of WatchOverview. An Update is an event of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The result of GetTimeline: events of a task in their order, and where the next page begins."""

    task: Task
    events: tuple[Recorded, ...]
    next_after: int | None = None
    """The seq to continue after; None if there are no more events."""
