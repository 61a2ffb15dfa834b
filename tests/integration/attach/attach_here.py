"""`synapse attach` without the command line around it: run by the tests in a terminal.

python attach_here.py SOCKET [look] [take] [key=X]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from synapse.attach.client import AttachOptions, attach
from synapse.attach.person import PersonTerminal
from synapse.core.errors import SynapseError

words = sys.argv[2:]
keys = [word.removeprefix("key=") for word in words if word.startswith("key=")]
options = AttachOptions(types="look" not in words, take="take" in words, detach_key=keys[0] if keys else "]")
try:
    ended = attach(sys.argv[1], options, PersonTerminal())
except SynapseError as error:
    sys.exit(f"refused: {error}")
sys.stdout.write(f"left: {ended.why} {ended.status}\n")
