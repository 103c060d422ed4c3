"""Configuration: typed keys with units, from a TOML file, the environment and --set."""

from drivetrain.config.application import AppSetting, AppSettings, current_sets, given_sets, split_sets
from drivetrain.config.catalog import ALL_KEYS
from drivetrain.config.config import Config, Origin, Setting
from drivetrain.config.key import Key, environment_name
from drivetrain.config.units import (
    Parser,
    boolean,
    choice,
    duration_ms,
    integer,
    number,
    show_duration_ms,
    show_size_bytes,
    size_bytes,
    table,
    text,
)

__all__ = [
    "ALL_KEYS",
    "AppSetting",
    "AppSettings",
    "Config",
    "Key",
    "Origin",
    "Parser",
    "Setting",
    "boolean",
    "choice",
    "current_sets",
    "duration_ms",
    "environment_name",
    "given_sets",
    "integer",
    "number",
    "show_duration_ms",
    "show_size_bytes",
    "size_bytes",
    "split_sets",
    "table",
    "text",
]
