"""The chunked transfer encoding of HTTP."""


class ChunkDecoder:
    """Takes the chunked transfer encoding off, however the bytes were cut."""

    def __init__(self) -> None:
        self._rest = b""
        self._missing = 0
        self.ended = False

    def receive(self, data: bytes) -> bytes:
        """Return the content that is complete so far.

        Raises:
            ValueError: it is not chunked.
        """
        self._rest += data
        content: list[bytes] = []
        while self._rest and not self.ended:
            if self._missing:
                piece, self._rest = self._rest[: self._missing], self._rest[self._missing :]
                self._missing -= len(piece)
                content.append(piece)
            elif not self._begin_chunk():
                break
        return b"".join(content)

    def _begin_chunk(self) -> bool:
        """Read the next chunk's size; False when its line is not complete yet."""
        stripped = self._rest.lstrip(b"\r\n")
        line, newline, after = stripped.partition(b"\r\n")
        if not newline:
            return False
        self._missing = int(line.partition(b";")[0], 16)
        self._rest = after
        self.ended = self._missing == 0
        return True
