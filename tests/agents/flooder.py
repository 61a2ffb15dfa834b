"""Prints as many megabytes as asked for at once, then works as a prompt that says hello."""

import sys

line = "this is a line of eighty characters, more or less, to be printed a lot of ti\n"
sys.stdout.write(line * (int(float(sys.argv[1]) * 1_000_000) // len(line)))
while True:
    sys.stdout.write("> ")
    sys.stdout.flush()
    said = sys.stdin.readline()
    if not said:
        break
    sys.stdout.write("hello\n")
