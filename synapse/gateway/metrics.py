"""The metrics of a gateway, in the Prometheus text format.

synapse_requests_total{dialect,outcome}        synapse_request_seconds{dialect}
synapse_agents{state}                          synapse_messages_waiting{agent}, synapse_tasks_working{agent}
synapse_delivery_seconds{agent,step}           synapse_notifications{state}
synapse_tokens_total{agent,kind}               synapse_cost_usd_total{agent}

Requests are counted as they are answered. Everything else is collected for each scrape: from the directory, the store,
the part of the log that was written since the previous scrape, and what hosts have counted of usage. Between scrapes
nothing is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Tally
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from time import perf_counter
from typing import Final, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from synapse import __version__
from synapse.core.address import on_machine, split_inbox
from synapse.core.agent import AGENT_STATES
from synapse.core.caller import Caller
from synapse.core.errors import Forbidden, InternalFailure, StoreFailed, SynapseError
from synapse.core.events import ReceiptChanged, TaskEvent, TaskOpened
from synapse.core.override import override
from synapse.core.push import DeliveryState
from synapse.core.requests import Delivered, ForAgent, MetricsSnapshot, Pending, Request
from synapse.core.service import Handler
from synapse.core.store import TaskQuery, TaskStore
from synapse.core.task import ReceiptStep, TaskId, TaskState
from synapse.core.usage import UsageTotal
from synapse.gateway.directory import GatewayAgent, GatewayDirectory
from synapse.server.app import CALLER_LEFT, Exchange, Observe

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
OK: Final = "ok"
_REQUEST_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_DELIVERY_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_WAITING: Final = frozenset({TaskState.SUBMITTED})
_WORKING: Final = frozenset({TaskState.WORKING})
_PAGE: Final = 500
_MAX_PAGES: Final = 20
"""How many pages of the log one scrape reads; the next scrape reads on."""
_MAX_TASKS: Final = 10_000
_TOKEN_KINDS: Final = ("input", "output", "cache_read", "cache_write")
"""Each token is of one kind, so that they can be added up; thoughts are output."""
_STEPS: Final = frozenset({ReceiptStep.SUBMITTED, ReceiptStep.TURN_STARTED, ReceiptStep.ANSWERED})

R = TypeVar("R")


class Metrics:
    """Counts requests, and renders all metrics.

    Its registry is its own, so that the default metrics of the process are not shown.
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self._requests = Counter(
            "synapse_requests", "Requests, by dialect and by how they ended", ["dialect", "outcome"], registry=registry
        )
        self._seconds = Histogram(
            "synapse_request_seconds",
            "How long requests took that were no streams",
            ["dialect"],
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self._agents = Gauge("synapse_agents", "Agents, by what they do", ["state"], registry=registry)
        self._waiting = Gauge("synapse_messages_waiting", "Messages in the queue", ["agent"], registry=registry)
        self._working = Gauge("synapse_tasks_working", "Tasks that are worked on", ["agent"], registry=registry)
        self._deliveries = Histogram(
            "synapse_delivery_seconds",
            "How long after it was queued a message was submitted, started and answered",
            ["agent", "step"],
            buckets=_DELIVERY_BUCKETS,
            registry=registry,
        )
        self._notifications = Gauge(
            "synapse_notifications", "Notifications for webhooks, by what became of them", ["state"], registry=registry
        )
        self._usage = _UsageCounters()
        registry.register(self._usage)
        Gauge("synapse_gateway_info", "The gateway", ["version"], registry=registry).labels(__version__).set(1)

    def count(self, exchange: Exchange) -> None:
        """Counts an answered request, and logs it."""
        outcome = exchange.error or OK
        self._requests.labels(exchange.dialect, outcome).inc()
        if not exchange.is_stream:
            self._seconds.labels(exchange.dialect).observe(exchange.seconds)
        if log.isEnabledFor(logging.DEBUG):
            facts = {"method": exchange.method, "path": exchange.path, "dialect": exchange.dialect, "outcome": outcome}
            log.debug("request_answered", extra={**facts, "ms": round(exchange.seconds * 1000, 1)})

    def text(self, snapshot: MetricsSnapshot) -> bytes:
        """Returns all metrics as text, with the values of `snapshot`."""
        _set(self._agents, dict.fromkeys(AGENT_STATES, 0) | dict(snapshot.agents))
        _set(self._waiting, snapshot.waiting)
        _set(self._working, snapshot.working)
        counted = {state.value: snapshot.notifications.get(state, 0) for state in DeliveryState}
        _set(self._notifications, counted)
        self._usage.totals = snapshot.usage
        for one in snapshot.delivered:
            self._deliveries.labels(one.agent, one.step).observe(one.seconds)
        return generate_latest(self._registry) + snapshot.link


class _UsageCounters(Collector):
    """Counters that hosts count, in a file; this process only shows them."""

    def __init__(self) -> None:
        self.totals: Mapping[str, UsageTotal] = {}

    @override
    def collect(self) -> Iterable[Metric]:
        tokens = CounterMetricFamily(
            "synapse_tokens", "Tokens, as the agents' CLIs tell them", labels=["agent", "kind"]
        )
        cost = CounterMetricFamily("synapse_cost_usd", "US dollars, where an agent's CLI tells them", labels=["agent"])
        for agent, total in self.totals.items():
            for kind in _TOKEN_KINDS:
                tokens.add_metric([agent, kind], getattr(total.tokens, kind))
            if total.cost is not None:
                cost.add_metric([agent], float(total.cost))
        return (tokens, cost)


def _set(gauge: Gauge, values: Mapping[str, int]) -> None:
    # Otherwise an agent that has left would be shown with its last values for ever.
    gauge.clear()
    for label, value in values.items():
        gauge.labels(label).set(value)


async def _no_link() -> bytes:
    """Returns no metrics: this machine has no link."""
    return b""


class MetricsCollector:
    """Collects the metrics of a gateway that are not counted as they happen."""

    def __init__(
        self,
        directory: GatewayDirectory,
        store: TaskStore,
        read_usage: Callable[[], Mapping[str, UsageTotal]],
        read_link: Callable[[], Awaitable[bytes]] = _no_link,
    ) -> None:
        """`read_usage` returns what the requests of each inbox cost; it runs in a thread, and may raise StoreFailed.

        `read_link` returns the metrics of this machine's link, as text.
        """
        self._read_link = read_link
        self._directory = directory
        self._store = store
        self._read_usage = read_usage
        self._times = DeliveryTimes(store)
        self._collecting = asyncio.Lock()

    async def collect(self, caller: Caller) -> MetricsSnapshot:
        """Returns the current metrics.

        Raises:
            Forbidden: the caller may use some agents only, and the metrics cover all of them.
            StoreFailed: the store cannot be read.
        """
        if caller.agents is not None:
            raise Forbidden(
                "these credentials are for some agents only, and the metrics cover all agents",
                hint="`synapse keys create NAME --actions read` makes a key for all agents",
            )
        async with self._collecting:
            agents = self._directory.agents()
            states = await asyncio.gather(*(agent.state() for agent in agents))
            names = {agent.entry.agent_id: agent.name for agent in agents}
            delivered = await self._times.read_new()
            return MetricsSnapshot(
                agents=Tally(states),
                waiting=await self._tasks(agents, _WAITING),
                working=await self._tasks(agents, _WORKING),
                notifications=await self._store.pushes.counts(),
                delivered=tuple(replace(one, agent=names.get(one.agent, one.agent)) for one in delivered),
                usage=await self._usage(agents),
                link=await self._read_link(),
            )

    async def _usage(self, agents: Sequence[GatewayAgent]) -> dict[str, UsageTotal]:
        try:
            totals = await asyncio.to_thread(self._read_usage)
        except StoreFailed as error:
            # The other metrics are worth more than these.
            log.warning("usage_not_read", extra={"error": str(error)})
            return {}
        return {agent.name: totals[agent.entry.inbox] for agent in agents if agent.entry.inbox in totals}

    async def _tasks(self, agents: Sequence[GatewayAgent], states: frozenset[TaskState]) -> dict[str, int]:
        queries = (TaskQuery(inbox=agent.entry.inbox, states=states, limit=1) for agent in agents)
        pages = await asyncio.gather(*(self._store.list(query) for query in queries))
        return {agent.name: page.total for agent, page in zip(agents, pages, strict=True)}


class DeliveryTimes:
    """Measures how long messages take from queued to submitted, started and answered, from the log of all agents."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._seq: int | None = None
        self._queued: dict[TaskId, tuple[str, datetime]] = {}

    async def read_new(self) -> tuple[Delivered, ...]:
        """Returns the steps recorded since the previous call. Raises StoreFailed.

        The first call returns nothing; messages that were queued before it are never measured.
        """
        if self._seq is None:
            self._seq = await self._store.last_seq()
            return ()
        steps: list[Delivered] = []
        for _ in range(_MAX_PAGES):
            page = await self._store.read_after(self._seq, limit=_PAGE)
            for recorded in page:
                steps += self._measure(recorded.event)
                self._seq = recorded.cursor
            if len(page) < _PAGE:
                break
        return tuple(steps)

    def _measure(self, event: TaskEvent) -> list[Delivered]:
        if isinstance(event, TaskOpened) and event.queued:
            self._queue(event.task_id, on_machine(event.agent_id, split_inbox(event.inbox)[1]), event.at)
        if not isinstance(event, ReceiptChanged):
            return []
        agent, since = self._queued.get(event.task_id, ("", event.at))
        if event.step is ReceiptStep.QUEUED and agent:
            self._queue(event.task_id, agent, event.at)
        if event.step.is_final:
            self._queued.pop(event.task_id, None)
        if event.step not in _STEPS or not agent:
            return []
        # The clock may have been set back in the meantime.
        seconds = max(0.0, (event.at - since).total_seconds())
        return [Delivered(agent=agent, step=event.step.value, seconds=seconds)]

    def _queue(self, task_id: TaskId, agent: str, at: datetime) -> None:
        self._queued[task_id] = (agent, at)
        if len(self._queued) > _MAX_TASKS:
            # The message that has waited longest is the least likely to be answered.
            del self._queued[next(iter(self._queued))]


class ObservedService:
    """Handler that reports the requests of another handler, for those that do not come over HTTP: gRPC, WebSocket.

    It counts a pending result when it arrives, and a stream when it begins.
    """

    def __init__(self, service: Handler, dialect: str, observe: Observe) -> None:
        self._service = service
        self._dialect = dialect
        self._observe = observe

    async def handle(self, request: Request[R], caller: Caller) -> R:
        """Raises what the service raises."""
        started = perf_counter()
        name = type(request.request if isinstance(request, ForAgent) else request).__name__

        def report(error: str = "", *, is_stream: bool = False) -> None:
            self._observe(Exchange("CALL", name, self._dialect, perf_counter() - started, error, is_stream))

        try:
            result = await self._service.handle(request, caller)
        except BaseException as error:
            report(_code(error))
            raise
        pending = _pending(result)
        if pending is not None:
            asyncio.ensure_future(pending.settled()).add_done_callback(lambda done: report(_error_code(done)))
        else:
            report(is_stream=isinstance(result, AsyncIterator))
        return result


def _pending(result: object) -> Pending[object] | None:
    """Returns the result if it has not arrived yet."""
    pending = cast("Pending[object] | None", result) if isinstance(result, Pending) else None
    return None if pending is None or pending.is_settled else pending


def _error_code(done: asyncio.Future[object]) -> str:
    if done.cancelled():
        return CALLER_LEFT
    error = done.exception()
    return "" if error is None else _code(error)


def _code(error: BaseException) -> str:
    if isinstance(error, SynapseError):
        return error.code
    return CALLER_LEFT if isinstance(error, asyncio.CancelledError) else InternalFailure.code
