"""Leases for tests that are about something else."""

from __future__ import annotations

from typing import Final

from synapse.core.store import Lease

ANY_LEASE: Final = Lease("*", "a test", 0)
"""The stores of the fakes take it for a current lease of whatever inbox they are to write."""
