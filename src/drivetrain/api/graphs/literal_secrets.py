"""Literal secrets where references belong: in an application's options and settings.

Problem: a password in an application file works, but is then part of every copy of that file.

Design: the graph's options that may hold secrets are checked, because each node knows its line.
Sending an application elsewhere is refused; running it here shows a notice.

Called by the client before it submits, and when an application is prepared to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from drivetrain.api.graphs.graph import Graph
from drivetrain.api.settings import Setting
from drivetrain.config import Config
from drivetrain.config.references import HOW, is_literal_secret
from drivetrain.errors import UserError

_WORDS = frozenset(("token", "secret"))
"""Names of settings that may mean something else."""


class SecretWrittenOutError(UserError):
    """A secret would leave this machine in plain text."""

    code = "secret-written-out"


def literal_secrets(graph: Graph | None, config: Config) -> list[str]:
    """The places of literal secrets: options of sources and sinks, and tables of the configuration."""
    found = [f"{name} ({place})" for name, place in config.literal_secrets()]
    return found if graph is None else [*found, *written_out_in(graph)]


def written_out_in(graph: Graph) -> list[str]:
    """The options of sources and sinks that hold literal secrets, with the lines of their processors."""
    found: list[str] = []
    for node in graph.nodes.values():
        end = node.operation.target or node.operation.any_source
        options: Iterable[tuple[str, str]] = getattr(end, "options", ())
        at = f"{node.id} ({node.where})"
        found += [f"{name} of {at}" for name, value in options if is_literal_secret(name, value)]
    return found


def settings_with_literal_secrets(given: Mapping[str, str], declared: Mapping[str, Setting]) -> list[str]:
    """The settings whose names look like secrets, not declared otherwise, with literal values."""
    return [
        f"--set {name}"
        for name, value in given.items()
        if name.lower() not in _WORDS
        and is_literal_secret(name, value)
        and (name not in declared or declared[name].secret is None)
    ]


def refuse_literal_secrets(places: Iterable[str]) -> None:
    """Raise `SecretWrittenOutError` if there is any place with a literal secret."""
    where = ", ".join(places)
    if where:
        raise SecretWrittenOutError(
            "a literal secret would be sent to other machines and stored there",
            where=where,
            expected="a reference to it: ${NAME} of the environment, or ${file:/path}",
            remedy=f"{HOW}; declare a setting that holds one with secret=True, another with secret=False",
        )


def literal_secret_notice(place: str) -> str:
    """The notice about one place, for the user that runs the application here."""
    return f"a literal secret: {place}; {HOW}"
