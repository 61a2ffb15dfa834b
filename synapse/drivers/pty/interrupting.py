"""Pressing the keys that interrupt a program."""

from __future__ import annotations

from synapse.drivers.pty.station import Station
from synapse.terminal.evidence import Look
from synapse.terminal.gate import dialog_open


async def press_interrupt(station: Station) -> bool:
    """Press them as the profile says; whether the program noticed is seen later. False when a dialog came between."""
    how = station.profile.interrupt
    for number, key in enumerate(how.keys):
        if number and not await _stays_undisturbed(station, how.pause):
            return False
        station.program.write(key)
    station.insistence.pressed(station.now())
    return bool(how.keys)


async def _stays_undisturbed(station: Station, seconds: float) -> bool:
    """Wait so long; False as soon as a dialog is open, which the next key would answer, or the program has ended."""
    end = station.now() + seconds
    while station.now() < end:
        await station.lookout.next_look(end)
        if dialog_open(station.lookout.look()) or station.program.exited.done():
            return False
    return True


async def press_again(station: Station, look: Look) -> None:
    """Press them once more if it was asked to stop and still works."""
    if station.insistence.is_due(look, station.now()):
        await press_interrupt(station)
