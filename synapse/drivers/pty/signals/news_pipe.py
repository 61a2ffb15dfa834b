"""A named pipe that hooks of a CLI write to: nobody answers them, so the CLI need not wait for anybody."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

from synapse.drivers.pty.signals.tail import read_record
from synapse.registries.private_folders import make_private
from synapse.terminal.signals.report import Record

_READ_SIZE: Final = 65536
_LONGEST_LINE: Final = 4 * 1024 * 1024


class NewsPipe:
    """Calls `take` for each JSON object that is written to it, one on each line. The loop's thread, but for `make`."""

    def __init__(self, path: Path, take: Callable[[Record], object]) -> None:
        self._path = path
        self._take = take
        self._number: int | None = None
        self._rest = b""

    def make(self) -> str:
        """Make it; return the shell command that writes its input to it, or nothing where that cannot be."""
        try:
            make_private(self._path.parent)
            self._path.unlink(missing_ok=True)
            os.mkfifo(self._path, 0o600)
        except OSError:
            return ""
        # Some end their input without the end of a line; and what another left half written is no part of this.
        return f"{{ echo; cat; echo; }} >{shlex.quote(str(self._path))}"

    def open(self) -> None:
        """Hear what is written from now on; who began to write before has waited."""
        try:
            # For writing too: with no other writer there would be an end of file again and again.
            self._number = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        except OSError:
            return
        asyncio.get_running_loop().add_reader(self._number, self.read)

    def read(self) -> None:
        """Take what has been written by now."""
        while self._number is not None:
            try:
                data = os.read(self._number, _READ_SIZE)
            except OSError:
                # Nothing more, for now.
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > _LONGEST_LINE:
                self._rest = b""
            for line in lines:
                record = read_record(line)
                if record is not None:
                    self._take(record)

    def close(self) -> None:
        if self._number is not None:
            asyncio.get_running_loop().remove_reader(self._number)
            os.close(self._number)
            self._number = None
