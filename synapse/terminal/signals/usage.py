"""Reads what requests to the model cost, from what each CLI writes or sends anyway.

Each reader takes the records of one conversation in order, and returns a report for a record that tells a cost: the
same one however often it reads the record. CLIs count differently, and `TokenCounts` counts each token once:

    Claude Code, OpenCode   tokens of the cache are not part of the input
    Codex, Gemini, Copilot  tokens of the cache are part of the input
    Gemini, OpenCode        thoughts are not part of the output

Only Claude Code and OpenCode tell money: Claude that of its whole session, when it ends. What Copilot calls cost is a
multiplier of requests.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, Protocol

from synapse.core.usage import NO_TOKENS, SESSION_COST, TokenCounts, UsageReport
from synapse.terminal.signals.report import Record, table_at, tables_at, text_at

_MOST_TOKENS: Final = 1 << 40
_MOST_DOLLARS: Final = 1_000_000
_LATEST_TIME: Final = 1 << 47
_SESSION_CONTEXT: Final = "<session_context>"
_ROLLOUT_COUNTS: Final = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)
_SERVER_COUNTS: Final = (
    "inputTokens",
    "cachedInputTokens",
    "cacheWriteInputTokens",
    "outputTokens",
    "reasoningOutputTokens",
)
"""The names of Codex's counts in its rollout, and those of its app-server."""


class UsageReader(Protocol):
    """Reads the records of one conversation."""

    def read(self, record: Record, /) -> UsageReport | None:
        """Returns what a request cost, if the record tells it."""
        ...


class ClaudeUsage:
    """Reads the transcript of Claude Code: a message has a line for each of its blocks, all with the same usage."""

    def __init__(self) -> None:
        self._turn = ""

    def read(self, record: Record, /) -> UsageReport | None:
        session = text_at(record, "sessionId")
        match text_at(record, "type"):
            case "user":
                self._turn = text_at(record, "promptId") or self._turn
                return None
            case "assistant":
                message = table_at(record, "message")
                usage = table_at(message, "usage")
                tokens = TokenCounts(
                    input=_count(usage, "input_tokens"),
                    output=_count(usage, "output_tokens"),
                    cache_read=_count(usage, "cache_read_input_tokens"),
                    cache_write=_count(usage, "cache_creation_input_tokens"),
                    reasoning=_count(table_at(usage, "output_tokens_details"), "thinking_tokens"),
                )
                request, at = text_at(message, "id"), _moment(text_at(record, "timestamp"))
                return _report(session, request, tokens, turn=self._turn, model=text_at(message, "model"), at=at)
            case "cost-state" if record.get("hasUnknownModelCost") is not True:
                cost = _dollars(record.get("totalCostUSD"))
                if not session or cost is None:
                    return None
                return UsageReport(session=session, request=SESSION_COST, tokens=NO_TOKENS, cost=cost)
            case _:
                return None


class CodexRolloutUsage:
    """Reads the rollout of Codex, which counts the whole session and the last request, and repeats itself."""

    def __init__(self) -> None:
        self._session = self._turn = self._model = ""

    def read(self, record: Record, /) -> UsageReport | None:
        payload = table_at(record, "payload")
        match text_at(record, "type"):
            case "session_meta":
                self._session = text_at(payload, "id") or self._session
            case "turn_context":
                self._turn, self._model = text_at(payload, "turn_id"), text_at(payload, "model") or self._model
            case "event_msg" if text_at(payload, "type") == "task_started":
                self._turn = text_at(payload, "turn_id")
            case "event_msg" if text_at(payload, "type") == "token_count":
                info = table_at(payload, "info")
                last = table_at(info, "last_token_usage")
                tokens = _codex_tokens(last, _ROLLOUT_COUNTS)
                request = _codex_request(self._turn, _count(table_at(info, "total_token_usage"), "total_tokens"))
                at = _moment(text_at(record, "timestamp"))
                return _report(self._session, request, tokens, turn=self._turn, model=self._model, at=at)
            case _:
                pass
        return None


class CodexServerUsage:
    """Reads what Codex's app-server sends: the same numbers as its rollout, under other names."""

    def __init__(self) -> None:
        self._models: dict[str, str] = {}
        """The model of each conversation."""
        self.paths: dict[str, str] = {}
        """The rollout of each conversation."""

    def read(self, record: Record, /) -> UsageReport | None:
        params = table_at(record, "params")
        thread = text_at(params, "threadId")
        match text_at(record, "method"):
            case "thread/started":
                self.note_thread(table_at(params, "thread"))
            case "thread/tokenUsage/updated":
                usage, turn = table_at(params, "tokenUsage"), text_at(params, "turnId")
                last = table_at(usage, "last")
                tokens = _codex_tokens(last, _SERVER_COUNTS)
                request = _codex_request(turn, _count(table_at(usage, "total"), "totalTokens"))
                at = _at_milliseconds(record.get("emittedAtMs"))
                return _report(thread, request, tokens, turn=turn, model=self._models.get(thread, ""), at=at)
            case _:
                pass
        return None

    def note_thread(self, thread: Record) -> None:
        """Takes a conversation that was begun before."""
        self._models[text_at(thread, "id")] = text_at(thread, "model")
        self.paths[text_at(thread, "id")] = text_at(thread, "path")


class GeminiUsage:
    """Reads the chat file of Gemini CLI: a message that calls a tool is written again once the tool has run."""

    def __init__(self) -> None:
        self._session = self._turn = ""

    def read(self, record: Record, /) -> UsageReport | None:
        self._session = text_at(record, "sessionId") or text_at(record, "$set", "sessionId") or self._session
        if text_at(record, "type") == "user":
            texts = [text for content in tables_at(record, "content") if (text := text_at(content, "text"))]
            if texts and not texts[0].startswith(_SESSION_CONTEXT):
                self._turn = text_at(record, "id")
            return None
        if text_at(record, "type") != "gemini":
            return None
        counts = table_at(record, "tokens")
        cached, thoughts = _count(counts, "cached"), _count(counts, "thoughts")
        tokens = TokenCounts(
            input=max(0, _count(counts, "input") - cached) + _count(counts, "tool"),
            output=_count(counts, "output") + thoughts,
            cache_read=cached,
            reasoning=thoughts,
        )
        request, at = text_at(record, "id"), _moment(text_at(record, "timestamp"))
        return _report(self._session, request, tokens, turn=self._turn, model=text_at(record, "model"), at=at)


class OpenCodeUsage:
    """Reads the events of OpenCode's server: an assistant's message tells its tokens again and again as it grows."""

    def __init__(self) -> None:
        self._turns: dict[str, str] = {}
        """The last turn of each conversation."""
        self._turns_above: dict[str, str] = {}
        """The conversations of sub-agents, each with the turn in which it was begun."""

    def read(self, record: Record, /) -> UsageReport | None:
        info = table_at(record, "properties", "info")
        match text_at(record, "type"):
            case "session.created" if text_at(info, "parentID"):
                self._turns_above[text_at(info, "id")] = self._turns.get(text_at(info, "parentID"), "")
                return None
            case "message.updated":
                return self._message(info, text_at(record, "properties", "sessionID") or text_at(info, "sessionID"))
            case _:
                return None

    def _message(self, info: Record, session: str) -> UsageReport | None:
        if text_at(info, "role") != "assistant":
            self._turns[session] = text_at(info, "id")
            return None
        counts = table_at(info, "tokens")
        thoughts = _count(counts, "reasoning")
        tokens = TokenCounts(
            input=_count(counts, "input"),
            output=_count(counts, "output") + thoughts,
            cache_read=_count(table_at(counts, "cache"), "read"),
            cache_write=_count(table_at(counts, "cache"), "write"),
            reasoning=thoughts,
        )
        provider, model = text_at(info, "providerID"), text_at(info, "modelID")
        return _report(
            session,
            text_at(info, "id"),
            tokens,
            turn=self._turns_above.get(session) or text_at(info, "parentID"),
            model=f"{provider}/{model}" if provider else model,
            # It says 0 for a model whose price it does not know.
            cost=_dollars(info.get("cost")) or None,
            at=_at_milliseconds(table_at(info, "time").get("created")),
        )


class CopilotUsage:
    """Reads the events of a Copilot session, sub-agents included."""

    def __init__(self) -> None:
        self._turn = ""

    def read(self, record: Record, /) -> UsageReport | None:
        if text_at(record, "type") == "user.message" and not text_at(record, "agentId"):
            # Without `agentId`: a sub-agent works for the turn that called it.
            self._turn = text_at(record, "data", "interactionId")
        if text_at(record, "type") != "session.usage_record":
            return None
        usage = table_at(record, "data", "usage")
        cached, written = _count(usage, "cacheReadTokens"), _count(usage, "cacheWriteTokens")
        tokens = TokenCounts(
            input=max(0, _count(usage, "inputTokens") - cached - written),
            output=_count(usage, "outputTokens"),
            cache_read=cached,
            cache_write=written,
            reasoning=_count(usage, "reasoningTokens"),
        )
        session, at = text_at(usage, "accounting", "sourceSessionId"), _moment(text_at(record, "timestamp"))
        return _report(session, text_at(record, "id"), tokens, turn=self._turn, model=text_at(usage, "model"), at=at)


def _report(  # noqa: PLR0913 - the fields of a report
    session: str,
    request: str,
    tokens: TokenCounts,
    *,
    turn: str,
    model: str,
    cost: Decimal | None = None,
    at: datetime | None,
) -> UsageReport | None:
    """Returns the report; None for a request that cost nothing yet, or that nothing names."""
    if not session or not request or not tokens.total:
        return None
    return UsageReport(session=session, request=request, turn=turn, model=model, tokens=tokens, cost=cost, at=at)


def _codex_tokens(counts: Record, names: tuple[str, ...]) -> TokenCounts:
    """Returns Codex's counts of one request, in which the cache is part of the input."""
    read, cached, written, output, reasoning = (_count(counts, name) for name in names)
    return TokenCounts(
        input=max(0, read - cached - written),
        output=output,
        cache_read=cached,
        cache_write=written,
        reasoning=reasoning,
    )


def _codex_request(turn: str, session_tokens: int) -> str:
    """Returns the name of a request of Codex, which gives it none: the count of its session grows with each."""
    return f"{turn}:{session_tokens}"


def _count(record: Record, key: str) -> int:
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS else 0


def _dollars(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST_DOLLARS:
        return None
    return Decimal(str(value))


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _at_milliseconds(value: object) -> datetime | None:
    if not isinstance(value, int) or not 0 < value < _LATEST_TIME:
        return None
    return datetime.fromtimestamp(value / 1000, UTC)
