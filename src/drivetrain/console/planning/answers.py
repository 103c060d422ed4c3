"""Makes the console's answers about the settings that an application declares.

Called by `console.planning.program`.
"""

from __future__ import annotations

from collections.abc import Mapping

from drivetrain.api.settings import Setting
from drivetrain.config.references import shown
from drivetrain.console.answers.graph import ApplicationSetting


def settings_of(declared: Mapping[str, Setting]) -> tuple[ApplicationSetting, ...]:
    """The settings that an application declares, with secrets masked."""
    return tuple(
        ApplicationSetting(
            name=setting.name,
            kind=setting.type.__name__,
            value=None if setting.value is None else _value(setting),
            is_required=setting.required,
            description=setting.doc,
        )
        for setting in declared.values()
    )


def _value(setting: Setting) -> str:
    return "***" if setting.secret else shown(setting.name, str(setting.value))
