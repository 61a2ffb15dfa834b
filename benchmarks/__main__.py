"""`scripts/bench`: run the benchmarks, print the table; `--write` puts it into docs/benchmarks.md."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    a2a,
    browser_terminals,
    claude_prompt,
    command_line,
    dashboard,
    delivery,
    fleet,
    footprint,
    gateway,
    keystrokes,
    listing,
    mcp,
    mcp_gateway,
    output,
    search,
    serving,
    sockets,
    top,
)
from benchmarks.rows import QUICK, WHOLE, Effort, Row
from benchmarks.table import as_text, into_document, load_average

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
BENCHMARKS: dict[str, tuple[str, Callable[[Effort], list[Row]]]] = {
    "command_line": (command_line.TITLE, command_line.run),
    "delivery": (delivery.TITLE, delivery.run),
    "mcp": (mcp.TITLE, mcp.run),
    "claude_prompt": (claude_prompt.TITLE, claude_prompt.run),
    "output": (output.TITLE, output.run),
    "serving": (serving.TITLE, serving.run),
    "a2a": (a2a.TITLE, a2a.run),
    "gateway": (gateway.TITLE, gateway.run),
    "mcp_gateway": (mcp_gateway.TITLE, mcp_gateway.run),
    "listing": (listing.TITLE, listing.run),
    "search": (search.TITLE, search.run),
    "sockets": (sockets.TITLE, sockets.run),
    "footprint": (footprint.TITLE, footprint.run),
    "keystrokes": (keystrokes.TITLE, keystrokes.run),
    "top": (top.TITLE, top.run),
    "dashboard": (dashboard.TITLE, dashboard.run),
    "browser_terminals": (browser_terminals.TITLE, browser_terminals.run),
    "fleet": (fleet.TITLE, fleet.run),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Each figure beside its limit or a peer.")
    parser.add_argument("benchmark", nargs="*", help=f"only these: {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it works")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args()
    unknown = [name for name in options.benchmark if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark '{unknown[0]}'; there are {', '.join(BENCHMARKS)}")
    if options.write and (options.quick or options.benchmark):
        parser.error("--write needs the whole run")
    loads = [load_average()]
    begun = time.monotonic()
    sections: list[tuple[str, list[Row]]] = []
    for name in options.benchmark or BENCHMARKS:
        title, run = BENCHMARKS[name]
        sections.append((title, run(QUICK if options.quick else WHOLE)))
        print(as_text(*sections[-1]), flush=True)
        loads.append(load_average())
    print(f"\n{time.monotonic() - begun:.0f} s; load average {' '.join(loads)}", file=sys.stderr)
    if options.write:
        document = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(into_document(document, sections, loads), encoding="utf-8")
        print(f"wrote {DOCUMENT.name}", file=sys.stderr)
    return 0 if all(row.reached is not False for _, rows in sections for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
