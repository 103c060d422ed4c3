"""`drivetrain key`: the keys of one role, for machines that do not need the secret of the cluster.

Called by `cli.main`.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from drivetrain.cli.arguments import ConfigOption, SetOption, load_config
from drivetrain.cli.cluster_access import cluster_sets
from drivetrain.config import split_sets
from drivetrain.errors import ConfigError
from drivetrain.terminal import print_line


class KeyRole(Enum):
    """The roles that have keys of their own; masters need the secret itself."""

    WORKER = "worker"
    CLIENT = "client"


def key_command(
    role: Annotated[KeyRole, typer.Argument(help="Role that the key allows.")],
    sets: SetOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Print the key of a role, to use instead of the cluster's secret.

    The secret allows every role in the cluster, a role's key only that role.
    """
    given = cluster_sets(sets, None)
    split_sets(given, ())
    config = load_config(config_file, given)
    from drivetrain.cluster.connection import keyring_of

    keyring = keyring_of(config, "master")
    if keyring is None:
        raise ConfigError(
            "there is no secret to make a key from",
            expected="the secret in DRIVETRAIN_SECRET or in the file cluster.secret-file",
            remedy="run this on a machine that has the cluster's secret",
        )
    print_line(keyring.text_for(role.value))
