"""Pressing the keys that interrupt a program."""

from __future__ import annotations

import asyncio

from synapse.drivers.pty.station import Station
from synapse.terminal.evidence import Look


async def press_interrupt(station: Station) -> None:
    """Press them as the profile says; whether the program noticed is seen later."""
    how = station.profile.interrupt
    for number, key in enumerate(how.keys):
        if number:
            await asyncio.wait((station.program.exited,), timeout=how.pause)
        station.program.write(key)
    station.insistence.pressed(station.now())


async def press_again(station: Station, look: Look) -> None:
    """Press them once more if it was asked to stop and still works."""
    if station.insistence.is_due(look, station.now()):
        await press_interrupt(station)
