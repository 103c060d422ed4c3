"""Distributions with a connector, installed in a test: modules and metadata in a directory on the path."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from drivetrain.spark.connector.installed import GROUP, installed_connectors

GUIDE = Path(__file__).parents[1] / "docs" / "guide" / "sources-and-sinks.md"

Install = Callable[[str, str, str], None]
"""Installs a distribution: the name of its module, the module's text, and the entry point's value."""


def guide_connector() -> tuple[str, str]:
    """The module that the guide shows, and the entry point's value."""
    section = GUIDE.read_text().partition("## A connector of your own")[2]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    value = re.search(r'^numbers = "(.*)"$', section, re.MULTILINE)
    assert code is not None
    assert value is not None
    return code[1], value[1]


@contextmanager
def installing(directory: Path) -> Iterator[Install]:
    """Yield a function that installs distributions in `directory`, and uninstall them at the end."""
    modules: list[str] = []

    def install(module: str, text: str, value: str) -> None:
        (directory / f"{module}.py").write_text(text)
        info = directory / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{module.partition('_')[0]} = {value}\n")
        modules.append(module)
        installed_connectors.cache_clear()

    sys.path.insert(0, str(directory))
    try:
        yield install
    finally:
        sys.path.remove(str(directory))
        for module in modules:
            sys.modules.pop(module, None)
        installed_connectors.cache_clear()
