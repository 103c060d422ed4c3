"""Where Drivetrain's directory in the user's cache is.

Called by `state_place` and by what `spark.session.cache_directory` keeps there.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Drivetrain's directory in the user's cache, whether it exists or not."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache, "drivetrain")
