"""What a host loads: one runs for every agent."""

from __future__ import annotations

import subprocess
import sys


def test_a_host_loads_the_table_of_html_characters_with_the_first_desktop_notice_only() -> None:
    code = "import sys, synapse.host.host, synapse.host.pty; assert 'html' not in sys.modules"

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
