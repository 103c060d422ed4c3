"""`drivetrain compact`: joins the small files of a table of Delta Lake or Iceberg.

Called by `cli.main`. Needs no Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drivetrain.api import sinks
from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption, duration_ms, load_config, parse_sets
from drivetrain.cli.json_output import as_data, print_json
from drivetrain.config import split_sets
from drivetrain.core.figures import show_counted, show_size
from drivetrain.errors import UserError
from drivetrain.terminal import print_line

if TYPE_CHECKING:
    from drivetrain.connectors.tables.compaction import Compaction


def compact_command(
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE",
            help="The table: the directory of a Delta table, or its place in an object store "
            "(s3://bucket/name); with --catalog, the name of an Iceberg table (namespace.name).",
        ),
    ],
    catalog: Annotated[
        str | None, typer.Option("--catalog", metavar="NAME", help="The catalog of an Iceberg table.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="A property of the catalog, such as uri=…; secrets as references. May be given several "
            "times; by default from pyiceberg's own configuration.",
        ),
    ] = None,
    target_size: Annotated[
        str,
        typer.Option(
            "--target-size",
            metavar="SIZE",
            help="The largest size of joined files; files with most of it stay as they are.",
        ),
    ] = "128 MiB",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
    ] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", help="How long to try while other writers come first.")
    ] = "60 s",
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Join the small files of a Delta or Iceberg table, also while applications write to it.

    Replaced files stay for readers of earlier versions, until the table is cleaned.
    """
    duration_ms(timeout, "--timeout")  # rejects an invalid duration as one of the option
    given = parse_sets(sets)
    split_sets(given, ())
    config = load_config(config_file, given, finds_local=False)
    table = _table(place, catalog, options or (), timeout)
    from drivetrain.spark.entry_points import compact

    done = compact(table, target_size=target_size, dry_run=dry_run, config=config)
    if as_json:
        print_json(as_data(done), sys.stdout)
        return
    print_line("\n".join(lines_of(done)))


def lines_of(done: Compaction) -> list[str]:
    """What a compaction has done, or would do, as text."""
    before = f"{show_counted(done.files, 'file')}, {show_size(done.bytes)}"
    if not done.replaced_files:
        found = [f"{done.table}: nothing to join in {before}"]
    else:
        about, would = ("about ", "would become ") if done.is_planned else ("", "became ")
        replaced = f"{show_counted(done.replaced_files, 'file')}, {show_size(done.replaced_bytes)}"
        written = f"{show_counted(done.written_files, 'file')}, {show_size(done.written_bytes)}"
        found = [f"{done.table}: {replaced}, {would}{about}{written}; the table had {before}"]
    if done.overtaken_files:
        files = show_counted(done.overtaken_files, "file")
        found.append(
            f"  {files} were replaced by other writers in the meantime; run the command again for others"
        )
    return found


def _table(
    place: str, catalog: str | None, options: Sequence[str], timeout: str
) -> sinks.DeltaSink | sinks.IcebergSink:
    if catalog is None:
        if options:
            raise UserError(
                "--option is for the catalog of an Iceberg table",
                got=f"--option {options[0].partition('=')[0]}",
                remedy="name the catalog with --catalog",
            )
        return sinks.delta(place, timeout=timeout)
    properties = {}
    for written in options:
        name, equals, value = written.partition("=")
        if not equals or not name.strip():
            raise UserError(
                "--option needs a name and a value", expected="--option NAME=VALUE", got=f"--option {name}"
            )
        properties[name.strip()] = value
    return sinks.iceberg(place, catalog=catalog, options=properties, timeout=timeout)
