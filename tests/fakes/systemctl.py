"""A `systemctl` and a `loginctl` that run nothing: they note how they were called, and remember what they were told."""

from __future__ import annotations

from pathlib import Path

# `started` and `enabled` hold a file for each unit; `broken` makes every start fail; `offline` is a user without a bus.
SYSTEMCTL = """#!/bin/sh
cd "{state}" || exit 1
echo "$*" >> calls
if [ -e offline ]; then echo "Failed to connect to bus: No medium found" >&2; exit 1; fi
shift
verb=$1
for unit; do :; done
case $verb in
  enable) touch "enabled-$unit" ;;
  disable) rm -f "enabled-$unit" "started-$unit" ;;
  start|restart)
    if [ -e broken ]; then echo "Job for $unit failed because the control process exited." >&2; exit 1; fi
    touch "started-$unit" ;;
  show)
    case $unit in --property=Version) echo "Version=252"; exit ;; esac
    if [ -e "enabled-$unit" ]; then echo UnitFileState=enabled; else echo UnitFileState=disabled; fi
    if [ -e "started-$unit" ]; then
      printf 'ActiveState=active\\nSubState=running\\nMainPID=4711\\nResult=success\\nNRestarts=2\\n'
      echo 'ActiveEnterTimestamp=Mon 2026-11-16 10:00:00 UTC'
    else
      printf 'ActiveState=failed\\nSubState=failed\\nMainPID=0\\nResult=exit-code\\nNRestarts=10\\n'
      printf 'ActiveEnterTimestamp=\\nInactiveEnterTimestamp=\\n'
    fi ;;
esac
"""
LOGINCTL = """#!/bin/sh
cat "{state}/linger"
"""
JOURNALCTL = """#!/bin/sh
echo "Error: port 8000 is taken"
"""


class FakeSystemd:
    """The programs in `programs`, which belongs to the PATH, and what they were told."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.state = folder / "programs", folder / "state"
        self.programs.mkdir(parents=True)
        self.state.mkdir()
        for name, text in (("systemctl", SYSTEMCTL), ("loginctl", LOGINCTL), ("journalctl", JOURNALCTL)):
            program = self.programs / name
            program.write_text(text.replace("{state}", str(self.state)), encoding="utf-8")
            program.chmod(0o755)
        (self.state / "linger").write_text("Linger=no\n", encoding="utf-8")

    def changes(self) -> list[str]:
        """Returns the calls that changed something, and forgets them."""
        calls = self.state / "calls"
        lines = calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return [line.removeprefix("--user ") for line in lines if " show " not in line]

    def mark(self, state: str) -> None:
        """Makes it `offline` or `broken`."""
        (self.state / state).touch()
