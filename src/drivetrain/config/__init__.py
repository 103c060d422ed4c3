"""Configuration: typed keys with units, from a TOML file, the environment and --set."""

from drivetrain.config.application import split_sets
from drivetrain.config.catalog import ALL_KEYS
from drivetrain.config.config import CONFIG_VARIABLE, Config, Origin, Setting, find_key
from drivetrain.config.key import Key, environment_name
from drivetrain.config.nearest import did_you_mean
from drivetrain.config.units import (
    Parser,
    boolean,
    choice,
    duration_ms,
    integer,
    local_path,
    number,
    show_duration_ms,
    show_size_bytes,
    size_bytes,
    table,
    text,
)

__all__ = [
    "ALL_KEYS",
    "CONFIG_VARIABLE",
    "Config",
    "Key",
    "Origin",
    "Parser",
    "Setting",
    "boolean",
    "choice",
    "did_you_mean",
    "duration_ms",
    "environment_name",
    "find_key",
    "integer",
    "local_path",
    "number",
    "show_duration_ms",
    "show_size_bytes",
    "size_bytes",
    "split_sets",
    "table",
    "text",
]
