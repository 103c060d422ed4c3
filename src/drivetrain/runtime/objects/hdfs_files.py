"""HDFS as a file system of pyarrow: an object store's, but files are renamed, and folders deleted as a whole.

Called by `locations`.
"""

from __future__ import annotations

from collections.abc import Callable

from drivetrain.runtime.objects.hdfs_store import HdfsStore
from drivetrain.runtime.objects.object_files import ObjectFiles, split_path


class HdfsFiles(ObjectFiles):
    """The files of name nodes; `open_node` gives those of one. Paths are "host:port/name"."""

    def __init__(self, open_node: Callable[[str], HdfsStore]) -> None:
        super().__init__("hdfs", open_node)
        self._node = open_node

    def move(self, source: str, target: str) -> None:
        """Rename `source`, unless there is a file `target`: then delete it."""
        (node, old), (_, new) = split_path(source), split_path(target)
        self._node(node).move_if_absent(old, new)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        """Delete a folder with what is below it; it comes back with its next file."""
        node, folder = split_path(path)
        self._node(node).delete_folder(folder)
