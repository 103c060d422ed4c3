"""Edits of the graph that an application of a cluster runs: attach, replace, remove, unsubscribe.

Problem: the graph in force can be edited only where its code can be loaded, and that is an executor.

Design: a client sends the file with the user's function, packed as for a submission, and names the processor.
It runs the file once, without the function, so that mistakes in it are found before anything is sent.

Called by `client`, and by the commands that edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drivetrain.cluster.messages.changing import GraphEdit, ProposedCode
from drivetrain.code.application_file import load_function, split_target
from drivetrain.code.archive import Archive, pack


@dataclass(frozen=True)
class GraphEditRequest:
    """An edit, and the file with its function; `function` is its name if that is not the edit's name."""

    edit: GraphEdit
    archive: Archive | None = None
    function: str | None = None

    @property
    def code(self) -> ProposedCode | None:
        """The reference to the function's file among the masters' archives."""
        if self.archive is None:
            return None
        return ProposedCode(self.archive.sha256, self.archive.file, self.function)


def attach_edit(
    file: str, to: str, *, directory: Path | None = None, archives: Sequence[Path] = ()
) -> GraphEditRequest:
    """Add what the function `attach` in `file` ("file.py" or "file.py:name") makes, after processor `to`.

    `directory` and `archives` are as for `code.archive.pack`. Raises ApplicationFileError and ArchiveError.
    """
    return _with_function(GraphEdit("attach", to), file, directory, archives)


def replace_edit(
    file: str, processor: str, *, directory: Path | None = None, archives: Sequence[Path] = ()
) -> GraphEditRequest:
    """Put what the function `replace` in `file` returns in place of a processor; see `attach_edit`."""
    return _with_function(GraphEdit("replace", processor), file, directory, archives)


def remove_edit(processor: str) -> GraphEditRequest:
    """Remove a processor, and everything that reads from it."""
    return GraphEditRequest(GraphEdit("remove", processor))


def unsubscribe_edit(reader: str) -> GraphEditRequest:
    """End the subscriptions of READER, an application by name or id, or of READER/SOURCE."""
    return GraphEditRequest(GraphEdit("unsubscribe", reader))


def _with_function(
    edit: GraphEdit, target: str, directory: Path | None, archives: Sequence[Path]
) -> GraphEditRequest:
    load_function(target, edit.how)
    file, function = split_target(target)
    return GraphEditRequest(edit, pack(file, archives, directory=directory), function)
