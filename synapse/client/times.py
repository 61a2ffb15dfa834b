"""Says times as people do: `3m`, `3m ago`, `in 2m`. JSON has the time itself. Light: `synapse list` imports it."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"))
_RELATIVE_SECONDS = 60 * 86_400
"""What is further away is said by its date: nobody counts 400 days."""


def span(seconds: float) -> str:
    """Returns a length of time in its largest unit: `12s`, `3m`, `1h`, `2d`."""
    whole = max(0, int(seconds))
    size, unit = next(((size, unit) for size, unit in _UNITS if whole >= size), (1, "s"))
    return f"{whole // size}{unit}"


def lasting(since: object, now: "datetime") -> str:
    """Returns how long it has lasted since then, a time or its ISO text: `3m`; empty when that is unknown."""
    at = _moment(since)
    return "" if at is None else span((now - at).total_seconds())


def ago(at: object, now: "datetime") -> str:
    """Returns when that is, a time or its ISO text: `3m ago`, `in 2m`, `now`, `2024-01-15`; empty when unknown."""
    moment = _moment(at)
    if moment is None:
        return ""
    seconds = (now - moment).total_seconds()
    if abs(seconds) >= _RELATIVE_SECONDS:
        return f"{moment.astimezone():%Y-%m-%d}"
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def _moment(at: object) -> "datetime | None":
    from datetime import datetime

    try:
        moment = at if isinstance(at, datetime) else datetime.fromisoformat(str(at))
    except ValueError:
        return None
    # A time without a zone cannot be compared.
    return moment if moment.tzinfo else None
