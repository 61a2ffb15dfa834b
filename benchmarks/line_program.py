"""A program that reads lines: it tells the moment of each to a datagram socket, prints it back, and asks for the next.

Run as `line_program.py SOCKET`.
"""

from __future__ import annotations

import socket
import sys
import time


def main(report_to: str) -> None:
    report = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    report.connect(report_to)
    while True:
        sys.stdout.write("> ")
        sys.stdout.flush()
        line = sys.stdin.buffer.readline()
        moment = time.monotonic()
        if not line:
            return
        report.send(b"%.9f" % moment)
        sys.stdout.write("echo: " + line.decode())


if __name__ == "__main__":
    main(sys.argv[1])
