"""`drivetrain console-access`: the users and tokens of the console.

Called by `cli.main`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption, load_config, parse_sets
from drivetrain.config import split_sets
from drivetrain.config.catalog import console as keys
from drivetrain.errors import UserError
from drivetrain.terminal import Console, Table, print_line

if TYPE_CHECKING:
    from drivetrain.console.access.access_file import AccessFile


class Action(StrEnum):
    """What to do with the users and tokens."""

    LIST = "list"
    ADD_USER = "add-user"
    ADD_TOKEN = "add-token"  # noqa: S105 - the name of an action
    REMOVE = "remove"


class RoleName(StrEnum):
    """The roles that a user or a token can have."""

    GUEST = "guest"
    USER = "user"
    ADMIN = "admin"


def console_access_command(
    action: Annotated[Action, typer.Argument(help="list, add-user, add-token or remove.")],
    name: Annotated[str | None, typer.Argument(help="Name of the user or the token.")] = None,
    role: Annotated[
        RoleName,
        typer.Option(
            "--role",
            help="guest reads figures; user also reads messages, and changes applications; admin also "
            "reads the configuration.",
        ),
    ] = RoleName.GUEST,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List, add or remove users and tokens of the console. It asks for a password."""
    from drivetrain.console.access.access_file import AccessFile
    from drivetrain.console.access.roles import role_of

    given = dict(parse_sets(sets))
    split_sets(given, ())
    file = AccessFile(Path(load_config(config_file, given)[keys.DIRECTORY]))
    if action is Action.LIST:
        _list(file, as_json)
        return
    if name is None:
        raise UserError(
            f"{action} needs a name", remedy=f"drivetrain console-access {action} NAME", where="NAME"
        )
    done: dict[str, str] = {"name": name}
    match action:
        case Action.ADD_USER:
            file.add_user(name, role_of(role), _password())
        case Action.ADD_TOKEN:
            done["token"] = file.add_token(name, role_of(role))
        case Action.REMOVE:
            file.remove(name)
    if as_json:
        print_line(json.dumps(done))
    else:
        print_line(done.get("token", f"{name}: done"))


def _password() -> str:
    text: str = typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
    return text


def _list(file: AccessFile, as_json: bool) -> None:
    entries = file.entries()
    rows = [
        *({"name": user.name, "kind": "user", "role": user.role} for user in entries.users),
        *({"name": token.name, "kind": "token", "role": token.role} for token in entries.tokens),
    ]
    if as_json:
        print_line(json.dumps(rows))
        return
    show_entries(rows, Console())


def show_entries(rows: Sequence[Mapping[str, str]], console: Console) -> None:
    """Print a table of users and tokens: their `name`, `kind` and `role`."""
    table = Table()
    table.add_names("name", "kind", "role")
    for row in rows:
        table.add_row(row["name"], row["kind"], row["role"])
    console.print(table)
