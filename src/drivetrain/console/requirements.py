"""The packages that only the console needs: those of the extra `drivetrain[console]`.

Called by `cli.consoles.console`, before anything of the console is imported.
"""

from __future__ import annotations

import importlib.util
from typing import Final

from drivetrain.errors import MissingDependencyError

PACKAGES: Final = {
    "starlette": "starlette",
    "uvicorn": "uvicorn",
    "prometheus_client": "prometheus-client",
}
"""Modules, and the packages that have them."""


def require_packages() -> None:
    """Raise MissingDependencyError if a package is not installed."""
    missing = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise MissingDependencyError(
            "the console needs packages that are not installed",
            expected=", ".join(PACKAGES.values()),
            got=f"without {', '.join(missing)}",
            remedy="pip install 'drivetrain[console]'",
        )
