"""The two ends of application time, which every layer must agree on (ms since the epoch, UTC)."""

from __future__ import annotations

from typing import Final

FINAL_CLOCK_MS: Final = 253402214400000
"""The clock of a stream that has ended: 9999-12-31, the last day that every reader can show."""

NO_CLOCK_MS: Final = -62135596800000
"""Before any clock: 0001-01-01, the first day that every reader can show."""
