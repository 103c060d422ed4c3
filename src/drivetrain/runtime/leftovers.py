"""Deletes the leftovers of an application's changes that never came into force, or that are over.

Problem: a fragment, or a channel for another application, is prepared before the version that has it is
recorded, and messages from before a change are written for it in a separate folder. If the process dies in
between, the files stay; and channels of subscriptions that have ended may be left, too.

Design: the process that has prepared the application, and that alone runs it, deletes files that no version
names. The key of a subscription is in the name of its channel, so a channel that the version in force lacks
is never used again, unless the change is still on trial.

What if we die here: the next run does the rest. The numbers of a fragment's batches are kept first, so no
later fragment of its name uses them again.

Invariants:

1. Nothing is deleted that a version names which is in force, on trial, or may be returned to in that trial.

Called by `spark.run.preparing`, `spark.run.fragment_changes` and `cluster.app_master.stream.stored_versions`.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.errors import InputError
from drivetrain.runtime.former_messages import delete_former

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory


def delete_leftovers(rundir: RunDirectory, in_force: GraphVersion) -> list[str]:
    """Delete the files of fragments and channels that no version has; returns their names."""
    records = [in_force]
    for number in rundir.versions.numbers():
        with suppress(InputError):
            records.append(rundir.versions.version(number))
    known = {id for record in records for id in record.fragments}
    gone = sorted(_names(rundir.home / "fragments") - known)
    for id in gone:
        rundir.places.delete(id, (), ())
    delete_former(rundir)
    on_trial = {in_force.number, in_force.follows} if rundir.versions.is_on_trial(in_force) else set()
    kept = {channel for record in records for id in record.fragments for channel in record.channels(id)}
    for record in records:
        if record is in_force or record.number in on_trial:
            kept |= subscription_channels(record)
    channels = sorted(_names(rundir.home / "channels") - kept)
    for channel in channels:
        shutil.rmtree(rundir.channel(channel), ignore_errors=True)
    return gone + channels


def delete_ended(rundir: RunDirectory, before: GraphVersion, now: GraphVersion) -> None:
    """Delete the channels of subscriptions that only the version before had."""
    for channel in subscription_channels(before) - subscription_channels(now):
        shutil.rmtree(rundir.channel(channel), ignore_errors=True)


def subscription_channels(record: GraphVersion) -> set[str]:
    """The channels of a version that other applications read."""
    return {one.channel for one in record.subscriptions}


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_dir()} if directory.is_dir() else set()
