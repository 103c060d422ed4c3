"""The configuration keys that may change while an application runs, and what is refused.

Problem: most of the configuration shapes what is compiled, stored or connected, so it is fixed once the
application has started. A few keys are only looked at now and then, such as the limits of batches. Those can
change, but each new value must fit what the application was started with.

Design: a table of the keys. Values travel and are stored as a user writes them; `checked` reads them with the
keys' own parsers.

Called by `runtime.running_config`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from drivetrain.config import Config
from drivetrain.config.catalog import checkpoint, run
from drivetrain.config.key import Key
from drivetrain.config.nearest import did_you_mean
from drivetrain.errors import ConfigError

CHANGEABLE: Final[Mapping[str, Key[Any]]] = {
    key.name: key
    for key in (
        run.BATCH_TARGET,
        run.MIN_BATCH_BYTES,
        run.MAX_BATCH_BYTES,
        run.KEEP_LETTERS_BYTES,
        run.KEEP_LETTERS_AGE,
        run.LATE_SAMPLES,
        run.TRIAL_WAIT,
        checkpoint.INTERVAL,
        checkpoint.TIMEOUT,
    )
}
"""The keys that may change, by name."""


def require_changeable(names: Iterable[str]) -> None:
    """Raise ConfigError for a name that is not one of a key that may change."""
    for name in names:
        if name not in CHANGEABLE:
            raise ConfigError(
                f"{name} cannot change while the application runs",
                expected=", ".join(CHANGEABLE),
                got=name,
                remedy=did_you_mean(name, CHANGEABLE, otherwise="stop the application and run it with --set"),
            )


def checked(values: Mapping[str, str], config: Config) -> Config:
    """The parsed values on top of those of `config`, with which the application was started.

    Raises ConfigError for a key that may not change, a value that its key cannot have, and a limit above the
    one with which the application was started.
    """
    require_changeable(values)
    changed = Config.load(None, {}, values)
    most = config[run.MAX_BATCH_BYTES]
    if run.MAX_BATCH_BYTES.name in values and changed[run.MAX_BATCH_BYTES] > most:
        raise ConfigError(
            f"{run.MAX_BATCH_BYTES.name} can only become smaller while the application runs",
            expected=f"at most {run.MAX_BATCH_BYTES.parse.show(most)}, with which it was started",
            got=values[run.MAX_BATCH_BYTES.name],
            remedy="stop the application and run it with the larger value",
        )
    return changed
