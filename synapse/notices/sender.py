"""Tells a person about the needs of one agent, in the agent's own host: no other process has to run.

    status of the agent ─► needs ─► NoticeTracker ─► rules ─► outlets ─► NoticeLog

A notice is shown once at each outlet, also across restarts of the host, and withdrawn when the need is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeVar

from synapse.client.overview import Need
from synapse.config.settings import Settings
from synapse.core.agent import AgentEntry
from synapse.core.types import Clock
from synapse.notices.log import NoticeLog, Result
from synapse.notices.outlets import Outlet, OutletFailed, OutletSettings, open_outlets
from synapse.notices.rules import NONE, Notice, NoticeTracker, Rules, agent_names, read_rules
from synapse.push.webhook import WebhookSender

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often it looks while something is open: that a person has seen an answer changes no status."""

Status = TypeVar("Status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notices:
    """The rules and outlets of a person's settings, and the record."""

    rules: Rules
    outlets: tuple[Outlet, ...]
    log: NoticeLog


def open_notices(settings: Settings, environ: Mapping[str, str]) -> Notices:
    """Opens what the settings describe. Raises InvalidSettings."""
    addresses = {"webhook": settings.notify_webhook, "ntfy": settings.notify_ntfy}
    outlets = OutletSettings(
        desktop=settings.notify_desktop,
        with_text=settings.notify_text,
        **{name: "" if address == NONE else address for name, address in addresses.items()},
    )
    return Notices(
        rules=read_rules(settings.notify_on, settings.notify_agents, settings.notify_quiet),
        outlets=open_outlets(outlets, WebhookSender(allow_private=settings.allow_private_webhooks), environ),
        log=NoticeLog(settings.home),
    )


class NoticeSender:
    """Sends the notices of one agent until its statuses end."""

    def __init__(self, agent: AgentEntry, notices: Notices, clock: Clock) -> None:
        self._agent_id = agent.agent_id
        self._names = agent_names(agent)
        self._outlets = notices.outlets
        self._rules = notices.rules
        self._log = notices.log
        self._clock = clock
        self._shown: dict[str, tuple[Notice, set[str]]] = {}
        """The open notices by id, each with the names of the outlets that show it."""

    async def run(self, statuses: AsyncGenerator[Status, None], needs_in: Callable[[Status], Sequence[Need]]) -> None:
        """Follows `statuses`, and looks again while a need is open.

        `needs_in` returns what the agent needs a person for, without what a person has seen by now.
        """
        try:
            recorded = await asyncio.to_thread(self._log.open_notices, self._agent_id)
            # Not those of `synapse top`, which rings for whoever sits there.
            ours = {outlet.name for outlet in self._outlets}
            self._shown = {key: (notice, names & ours) for key, (notice, names) in recorded.items() if names & ours}
        except OSError as error:
            log.warning("notices_not_read", extra={"error": str(error)})
        tracker = NoticeTracker(self._shown)
        async with aclosing(statuses):
            coming = asyncio.ensure_future(anext(statuses))
            try:
                status = await coming
                coming = asyncio.ensure_future(anext(statuses))
                while True:
                    changes = tracker.look(needs_in(status), self._clock.monotonic())
                    await asyncio.gather(
                        *(self._withdraw(notice_id) for notice_id in changes.gone),
                        *(self._open(notice) for notice in changes.opened),
                    )
                    await asyncio.wait({coming}, timeout=LOOK_SECONDS if tracker.is_waiting else None)
                    if coming.done():
                        status = coming.result()
                        coming = asyncio.ensure_future(anext(statuses))
            except StopAsyncIteration:
                return
            finally:
                coming.cancel()
                await asyncio.wait({coming})

    async def _open(self, notice: Notice) -> None:
        suppressed = self._rules.why_suppressed(notice, self._names, self._clock.now().astimezone())
        await asyncio.gather(*(self._show(notice, outlet, suppressed) for outlet in self._outlets))

    async def _show(self, notice: Notice, outlet: Outlet, suppressed: str) -> None:
        if suppressed:
            await self._record(notice, outlet, Result.SUPPRESSED, suppressed)
            return
        if why := await _why_failed(outlet.show(notice)):
            await self._record(notice, outlet, Result.FAILED, why)
        else:
            self._shown.setdefault(notice.id, (notice, set()))[1].add(outlet.name)
            await self._record(notice, outlet, Result.SENT)

    async def _withdraw(self, notice_id: str) -> None:
        if notice_id not in self._shown:
            return  # it was suppressed, or failed
        notice, names = self._shown.pop(notice_id)
        for outlet in self._outlets:
            if outlet.name in names:
                why = await _why_failed(outlet.withdraw(notice_id))
                await self._record(notice, outlet, Result.WITHDRAWN, f"not removed there: {why}" if why else "")

    async def _record(self, notice: Notice, outlet: Outlet, result: Result, why: str = "") -> None:
        try:
            await asyncio.to_thread(self._log.append, notice, outlet.name, result, self._clock.now(), why)
        except OSError as error:
            # A full disk must not stop the agent, nor the notice.
            log.warning("notice_not_recorded", extra={"error": str(error)})


async def _why_failed(telling: Awaitable[None]) -> str:
    """Waits for an outlet; returns why it failed, or an empty string."""
    try:
        await telling
    except OutletFailed as failure:
        return str(failure)
    except Exception as defect:
        # A notice is not worth the host of the agent.
        log.exception("notice_failed")
        return f"an error in Synapse: {type(defect).__name__}; the log has it"
    return ""
