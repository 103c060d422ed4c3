"""Whether states can be read by the current version of a Task: as they are, by a migration, or not at all.

Stored states carry the form in which they were written. A later version of a Task may declare other states,
if it can migrate the earlier ones; what identifies a state (its key, its window) stays.

Called by `key_migration` for keyed Tasks, and by `state_rules` for persistent ones. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from drivetrain.errors import UserError


class StoredForm(NamedTuple):
    """The declaration of a Task's states: `content` can be migrated to a later version, `rules` cannot."""

    content: str
    rules: str = ""
    version: int = 1

    def require_readable(self, stored: StoredForm, *, migrates: bool, fixed: str) -> None:
        """Raise `UserError` unless a Task with this form can read states that were stored with another.

        `migrates`: whether the Task has a `migrate`; `fixed` names what the rules consist of.
        """
        if stored == self:
            return
        if stored.version > self.version:
            raise _refused(
                "the states are of a newer version of the Task",
                f"version {stored.version}: {stored.content}",
                "run the newer version of the application, or start over with --fresh",
                f"version {self.version} or older",
            )
        if stored.rules != self.rules:
            raise _refused(
                f"{fixed} has changed",
                stored.rules,
                "restore the earlier declaration, or start over with --fresh; a migration cannot change this",
                self.rules,
            )
        if stored.version == self.version or not migrates:
            raise _refused(
                "the declaration of the states has changed",
                f"{stored.content} {stored.rules}".strip(),
                f"restore the earlier declaration; or set version = {stored.version + 1} in the Task and "
                "define migrate; or start over with --fresh",
                f"{self.content} {self.rules}".strip(),
            )


def failed_migration(key: object, version: int, form: StoredForm, error: Exception) -> UserError:
    """The error for a key whose states of an older version could not be migrated."""
    return UserError(
        f"the states of the key {key!r} cannot be migrated from version {version}",
        expected=f"{form.content}, as version {form.version}",
        got=f"{type(error).__name__}: {error}",
        remedy="correct migrate: nothing of the new version has been written",
    )


def _refused(what: str, got: str, remedy: str, expected: str) -> UserError:
    return UserError(what, expected=expected, got=got, remedy=remedy)
