"""Changes the configuration of an application while it runs embedded.

Called by `control_answers` and `running_application`, in their threads, and by `embedded` when a run begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from drivetrain.runtime.running_config import ChangedValue, RunningConfig

if TYPE_CHECKING:
    from drivetrain.spark.run.application_versions import ApplicationVersions


def configure(
    versions: ApplicationVersions, values: Mapping[str, str], restored: Iterable[str]
) -> tuple[ChangedValue, ...]:
    """Change values of configuration keys; returns what has changed. Raises like `RunningConfig.change`."""
    found = _running(versions).change(values, restored)
    for value in found:
        versions.notices.append(f"{value.name} is {value.after} from now on; it was {value.before}")
    return found


def notices_of_changed(versions: ApplicationVersions) -> list[str]:
    """Notices for the user when a run begins: values that were changed in an earlier run.

    Raises InputError when they cannot be read.
    """
    return [
        f"{name} is {text}: it was changed while the application ran "
        f"(drivetrain update {versions.rundir.application} --unset {name} takes that back)"
        for name, text in _running(versions).changed().items()
    ]


def _running(versions: ApplicationVersions) -> RunningConfig:
    return RunningConfig(versions.rundir.path, versions.in_force.context.config)
