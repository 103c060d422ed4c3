"""The rules of a persistent Task's states: monoid, codec, window and step; and the results of ended windows.

Called by `two_state` and by layer `spark`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from drivetrain.api.states.monoids import Monoid
from drivetrain.api.states.persistent import Codec
from drivetrain.api.windows import Window
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.state.state_keys import decoded_key
from drivetrain.core.state.stored_form import StoredForm, failed_migration
from drivetrain.core.state.window_state import assign

S = TypeVar("S")

Span: TypeAlias = tuple[int, int]
"""A window, from its start to before its end, in ms; `EVER` where there are no windows."""
EVER: Final[Span] = (0, 0)


@dataclass(frozen=True)
class StateRules(Generic[S]):
    """How the states of a processor are merged and encoded, and divided into windows and panes.

    `form` describes them; states with another one are migrated or refused. `migrate(version, is_coded,
    encoded)` decodes a state that an older version has encoded; `is_coded`: with a codec of its own.
    """

    monoid: Monoid[Any, S]
    codec: Codec[S]
    form: StoredForm
    step_ms: int | None = None
    window: Window | None = None
    is_coded: bool = False
    migrate: Callable[[int, bool, bytes], S] | None = None

    def require_readable(self, stored: StoredForm) -> None:
        """Raise `UserError` unless states of this form can be read or migrated."""
        fixed = "the key, the window or the as_of of the states"
        self.form.require_readable(stored, migrates=self.migrate is not None, fixed=fixed)

    def decoded(self, key: bytes, encoded: bytes, version: int, *, is_coded: bool) -> S:
        """A state of a key that this version or an older one has encoded.

        Raises `UserError` if it cannot be migrated: `migrate` fails, or returns what cannot be encoded.
        """
        if version == self.form.version:
            return self.codec.decode(encoded)
        if self.migrate is None or version > self.form.version:
            self.require_readable(self.form._replace(version=version))
        assert self.migrate is not None
        try:
            state = self.migrate(version, is_coded, encoded)
            return self.codec.decode(self.codec.encode(state))
        except Exception as error:
            raise failed_migration(decoded_key(key), version, self.form, error) from error

    def spans(self, ts_ms: int) -> Iterable[Span]:
        """The windows that contain a message with this timestamp."""
        return (EVER,) if self.window is None else assign(self.window, ts_ms, FINAL_CLOCK_MS)

    def pane(self, ts_ms: int) -> int:
        """The beginning of a message's pane; messages of one pane may be merged beforehand."""
        return 0 if self.step_ms is None else ts_ms - ts_ms % self.step_ms


@dataclass(frozen=True)
class EndedWindow(Generic[S]):
    """The last state of a key in a window that has ended."""

    span: Span
    key: bytes
    state: S
