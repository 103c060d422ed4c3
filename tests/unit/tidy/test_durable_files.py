"""One place for durable files and locks: other modules that rename, link, sync or lock files are named here.

Why: a file that is renamed without being synced may be empty after a power cut, and nothing shows that until
it happens. `durable` and `file_lock` have the steps in the right order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import pytest
from source_tree import modules

ROOMS = {"drivetrain.durable", "drivetrain.file_lock"}

REASONS = {
    "drivetrain.cli.projects.init": "a new project, which the same command makes again",
    "drivetrain.code.archive": "unpacked code: after a restart it is fetched again",
    "drivetrain.code.cache": "a directory gets another name before it is deleted",
    "drivetrain.console.access.audit": "an append-only log moves to its second file",
    "drivetrain.console.past.history_file": "a damaged file is put aside",
    "drivetrain.runtime.channel.files": "the local half of stores, which refuses taken names",
    "drivetrain.runtime.state.linked_copy": "links to files that Spark never changes",
    "drivetrain.runtime.checkpoints.snapshots": "links to files that are synced",
    "drivetrain.runtime.control_socket": "a socket, which a restart makes again",
    "drivetrain.runtime.temporary_folders": "a lock that must not follow links",
    "drivetrain.spark.session.class_archive": "classes that Java checks and the next start writes again",
}

_OF_OS = {"replace", "rename", "renames", "link", "fsync", "fdatasync"}
_ANYWHERE = {"flock", "lockf", "fsync", "hardlink_to"}


def uses(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The calls of a module that rename, link, sync or lock a file, as their names."""
    for node in nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, value = node.func.attr, node.func.value
        is_os = isinstance(value, ast.Name) and value.id in {"os", "shutil"}
        # `Path.rename` takes one argument; that of a stream takes names. `Path.replace` is not distinguished.
        is_path = name == "rename" and len(node.args) == 1 and not node.keywords
        if name in _ANYWHERE or (is_os and name in {*_OF_OS, "move"}) or (is_path and not is_os):
            yield name


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("os.replace(a, b)", ["replace"]),
        ("fcntl.flock(f, fcntl.LOCK_EX)", ["flock"]),
        ("aside.rename(path)", ["rename"]),
        ("text.replace('a', 'b'); dataclasses.replace(x, y=1)", []),
        ("os.fsync(f.fileno()); shutil.move(a, b)", ["fsync", "move"]),
    ],
    ids=["replace", "flock", "rename", "texts", "sync"],
)
def test_the_rule_finds_what_it_forbids(code: str, found: list[str]) -> None:
    assert list(uses(ast.walk(ast.parse(code)))) == found


def test_only_named_modules_rename_sync_or_lock_files() -> None:
    found = {name: sorted(set(uses(module.nodes))) for name, module in modules().items()}
    others = {name: calls for name, calls in found.items() if calls and name not in ROOMS | REASONS.keys()}
    assert not others, "use drivetrain.durable or drivetrain.file_lock, or give a reason here"


def test_named_modules_still_do() -> None:
    idle = [name for name in REASONS if name not in modules() or not any(uses(modules()[name].nodes))]
    assert not idle, "the list only shrinks"
