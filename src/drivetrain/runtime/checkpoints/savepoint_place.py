"""The default directory of a savepoint, for users who name none.

Called by `drivetrain.savepoint`, by the command of that name and by the console.
"""

from __future__ import annotations

import time
from pathlib import Path


def savepoint_place(state_dir: str, app_id: str, name: str | None = None) -> Path:
    """The directory of a savepoint below a state directory; `name` None means the id and the time, UTC."""
    named = name or f"{app_id}-{time.strftime('%Y-%m-%dT%H-%M-%S', time.gmtime())}"
    return Path(state_dir, "savepoints", named)
