"""Shows its prompt, and reads only after a while: what is typed has to wait in the terminal."""

import select
import sys

patience = float(sys.argv[1])
while True:
    sys.stdout.write("> ")
    sys.stdout.flush()
    select.select((), (), (), patience)
    line = sys.stdin.readline()
    if not line:
        break
    sys.stdout.write(f"read {len(line.strip())} characters\n")
