"""Stops the webhooks that a revoked or expired key has set for tasks on other machines.

A host knows the keys of its own machine only, and its machine may not read those of the gateways. So a gateway that
learns of a revocation, or sees that a key has expired, looks through the open tasks of the other machines, and deletes
the webhooks of the key. It looks again for two days: at a machine that was away, and at tasks that its replica got
later.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from synapse.auth.api_keys import KeyFile
from synapse.auth.mirror import Revocations
from synapse.core.address import split_inbox
from synapse.core.caller import Caller
from synapse.core.errors import NotFound, StoreFailed, SynapseError
from synapse.core.requests import DeletePushConfig, ListPushConfigs
from synapse.core.store import TaskQuery
from synapse.core.task import Task, TaskId, TaskState
from synapse.core.waiting import pause
from synapse.gateway.directory import GatewayDirectory
from synapse.gateway.tasks import GatewayFleet

log = logging.getLogger(__name__)

LOOK_BACK: Final = timedelta(days=2)
"""How long ago a key may have been revoked, or have expired, that a gateway still looks for."""
LOOK_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 30.0
_PAGE: Final = 200
_OPEN: Final = frozenset(state for state in TaskState if not state.is_terminal)
_DELETES: Final = Caller(scope="gateway", sees_all=True, name="gateway")


class RevokedWebhooks:
    """Deletes webhooks of revoked and expired keys on other machines, while `run` runs."""

    def __init__(self, home: Path, directory: GatewayDirectory, fleet: GatewayFleet) -> None:
        self._revocations = Revocations(home)
        self._keys = KeyFile(home, fleet.clock)
        self._directory = directory
        self._fleet = fleet
        self._asked: dict[str, set[TaskId]] = {}
        """The open tasks whose machines were told of the key's end, by the id of the key."""
        self._look_at: dict[str, float] = {}
        """When to look again, by the id of the key: at machines that could not be asked, and at tasks that came since.
        """

    async def run(self) -> None:
        """Looks for keys that have ended every few seconds, until it is cancelled."""
        while True:
            try:
                await self.check()
            except SynapseError as error:
                log.warning("revocations_not_carried_out", extra={"error": error.code})
            except Exception:
                # The gateway depends on this task, and a defect here must not end it.
                log.exception("revocations_not_carried_out")
            await pause(LOOK_SECONDS)

    async def check(self) -> None:
        """Carries out the ends of keys at all tasks that it has not looked at for them."""
        since = self._fleet.clock.now() - LOOK_BACK
        try:
            current = await asyncio.to_thread(self._ended_since, since)
        except StoreFailed as error:
            log.warning("revocations_not_read", extra={"error": str(error)})
            return
        now = self._fleet.clock.monotonic()
        for key_id in self._look_at.keys() - current:
            del self._look_at[key_id]
            self._asked.pop(key_id, None)
        due = {key_id for key_id in current if self._look_at.get(key_id, 0.0) <= now}
        if due:
            await self._carry_out(due)
            self._look_at.update(dict.fromkeys(due, now + RETRY_SECONDS))

    def _ended_since(self, moment: datetime) -> set[str]:
        """Returns the ids of the keys that were revoked or have expired since. Raises StoreCorrupt, StoreFailed."""
        revoked = [*self._revocations.own.current().values(), *self._revocations.mirrored.current().values()]
        return {one.record_id for one in revoked if one.at >= moment} | self._keys.expired_since(moment)

    async def _carry_out(self, key_ids: set[str]) -> None:
        told = {key_id: set[TaskId]() for key_id in key_ids}
        query = TaskQuery(states=_OPEN, limit=_PAGE)
        while True:
            page = await self._fleet.store.replica.list(query)
            for task in page.tasks:
                new = {key_id for key_id in key_ids if task.id not in self._asked.get(key_id, ())}
                is_told = not new or await self._delete(new, task)
                for key_id in key_ids if is_told else key_ids - new:
                    told[key_id].add(task.id)
            if not page.next_cursor:
                break
            query = TaskQuery(states=_OPEN, limit=_PAGE, cursor=page.next_cursor)
        self._asked.update(told)

    async def _delete(self, key_ids: set[str], task: Task) -> bool:
        """Deletes the webhooks of a task that these keys have set; returns False if its machine could not be asked."""
        owner = self._directory.owner(task)
        if owner is None or owner.is_away:
            return False
        try:
            found = (await owner.command(ListPushConfigs(task_id=task.id), _DELETES)).result
            for config in found if isinstance(found, tuple) else ():
                if config.set_by.partition("@")[0] in key_ids:
                    await owner.command(DeletePushConfig(task_id=task.id, config_id=config.id), _DELETES)
                    log.info("webhook_of_ended_key_deleted", extra={"machine": split_inbox(task.inbox)[1]})
        except NotFound:
            return True
        except SynapseError as error:
            log.info("webhooks_not_read", extra={"task": task.short_id, "error": error.code})
            return False
        return True
