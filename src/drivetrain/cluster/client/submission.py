"""A submission that a client sends to the cluster: the specification of an application, and its code.

Problem: a wrong graph, a missing import or a misspelt setting should be reported to the user who submits, not
discovered on some worker; and the submission must contain everything needed to start the application on any
machine, any number of times.

Design: the client loads and plans the application, with neither Spark nor data. A file that defines no
application but its own application master has no graph to plan. Settings are sent as the user typed them; the
configuration without keys that have their default, and without those that concern only this process (the
addresses of masters, secrets, how long commands wait).

Invariants:
1. The graph of a `Submission` was planned successfully.
2. It contains no secret.

Called by the commands and by `blocking`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from drivetrain.api.graphs.literal_secrets import (
    refuse_literal_secrets,
    settings_with_literal_secrets,
    written_out_in,
)
from drivetrain.api.moments import moment_ms
from drivetrain.api.settings import Setting
from drivetrain.cluster.app_master.custom.custom_file import declared_app_master, spelled
from drivetrain.cluster.client.refusals import require_name
from drivetrain.cluster.messages.applications import ApplicationSpec, ApplicationView, Priority
from drivetrain.code.application_file import ApplicationFileError, load_application, split_target
from drivetrain.code.archive import Archive, pack
from drivetrain.config import Config, split_sets
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.core.replay.replay import replay_of
from drivetrain.runtime.checkpoints.checkpoint_mode import refuse_copies
from drivetrain.runtime.checkpoints.savepoint_place import savepoint_place
from drivetrain.runtime.objects.locations import is_in_object_store
from drivetrain.runtime.state_place import is_remote

_OWN: Final = ("cluster.", "client.")
"""Topics of keys for this process's connection to the cluster; workers have their own."""


@dataclass(frozen=True, slots=True)
class Submission:
    """An application that can be submitted; `plan` is None for one with its own application master.

    `settings` are those that it declares, with the values that they got.
    """

    spec: ApplicationSpec
    archive: Archive
    plan: Plan | None
    settings: Mapping[str, Setting] = field(default_factory=dict)


def prepare_submission(
    target: str,
    sets: Mapping[str, str],
    config: Config,
    *,
    name: str | None = None,
    directory: Path | None = None,
    archives: Sequence[Path] = (),
    fresh: bool = False,
    replay_from: str | int | datetime | None = None,
    from_savepoint: str | os.PathLike[str] | None = None,
    priority: Priority = Priority.NORMAL,
) -> Submission:
    """Load and plan the application of `target` ("file.py" or "file.py:name"), and pack its code.

    `replay_from` begins a new life, which processes messages from that timestamp on; `from_savepoint` is a
    directory, readable for its executors, from which it continues.
    `sets` holds its settings, and may hold keys of the configuration, which are in `config` already.
    `name` None means the application's own; `directory` and `archives` are as for `code.archive.pack`.
    Raises ApplicationFileError with the user's traceback, GraphError, ReplayError, ConfigError,
    SecretWrittenOutError, ApplicationNameError, and what packing raises.
    """
    refuse_copies(config)
    from_ms = None if replay_from is None else moment_ms(replay_from, "replay_from")
    file, attribute = split_target(target)
    found = _load(target, sets)
    _, settings = split_sets(sets, found.settings)
    if from_ms is not None and found.plan is not None:
        replay_of(found.plan.graph, from_ms)
    refuse_literal_secrets(
        [
            *(f"{key} ({place})" for key, place in config.literal_secrets() if not key.startswith(_OWN)),
            *(() if found.plan is None else written_out_in(found.plan.graph)),
            *settings_with_literal_secrets(settings, found.settings),
        ]
    )
    chosen = found.name if name is None else name
    require_name(chosen)
    archive = pack(file, archives, directory=directory)
    spec = ApplicationSpec(
        name=chosen,
        code=archive.sha256,
        file=archive.file,
        target=attribute,
        settings=dict(settings),
        config=sent_config(config),
        directory=os.getcwd(),
        priority=priority,
        fresh=fresh,
        app_master=found.app_master,
        replay_from_ms=from_ms,
        savepoint=None if from_savepoint is None else _place(os.fspath(from_savepoint)),
    )
    return Submission(spec, archive, found.plan, found.settings)


@dataclass(frozen=True, slots=True)
class _FileContents:
    """The contents of a file: a graph, which was planned, or an application master's class."""

    name: str
    settings: Mapping[str, Setting]
    plan: Plan | None = None
    app_master: str | None = None


def _load(target: str, sets: Mapping[str, str]) -> _FileContents:
    file, attribute = split_target(target)
    try:
        application = load_application(target, sets)
    except ApplicationFileError as error:
        custom = None if error.user_traceback else declared_app_master(file, attribute)
        if custom is None:
            raise
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", file.stem)
        own = {
            known: Setting(known, str, default, False, "", sets.get(known, default))
            for known, default in custom.settings.items()
        }
        return _FileContents(name, own, app_master=spelled(file, custom))
    return _FileContents(application.name, application.settings, make_plan(application.graph()))


def sent_config(config: Config) -> dict[str, str]:
    """The part of the configuration that is sent with an application, by key, as a user would write it."""
    return {
        setting.key.name: setting.key.parse.show(setting.value)
        for setting in config
        if setting.place != "default" and not setting.key.name.startswith(_OWN)
    }


def _place(place: str) -> str:
    """A place as workers find it, which run in other directories."""
    return place if is_in_object_store(place) else os.path.abspath(place)


def own_savepoint_place(view: ApplicationView, name: str | None = None) -> str:
    """The place of a savepoint below the state directory of an application that was submitted."""
    config = Config.load(None, {}, view.spec.config)
    if is_remote(config):
        return f"{config[run_keys.STATE_DIR].rstrip('/')}/{savepoint_place('', view.app_id, name)}"
    return str(Path(view.spec.directory, savepoint_place(config[run_keys.STATE_DIR], view.app_id, name)))
