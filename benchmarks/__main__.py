"""Runs the benchmarks one after another, keeps their figures, and renders them into a page.

    python -m benchmarks                                    # the main table in 15 minutes, and curves
    python -m benchmarks wordcount sol                      # some benchmarks in full
    python -m benchmarks wordcount sol --quick              # on little data: is everything there?
    python -m benchmarks field                              # jobs beside all peers of the field
    python -m benchmarks all --write docs/benchmarks.md     # everything, hours, into the page
    python -m benchmarks none --write docs/benchmarks.md    # only render what .bench-results/ holds

Each benchmark is a process of its own; when one fails the others go on, and the command ends with status 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.report import as_main_table, as_text, write_into

MAIN = ("wordcount", "windows", "python_split", "sol", "hop", "trickle", "kafka_read")
"""What a newcomer gets: one round of each."""

MAIN_CURVES = ("batch_rows", "cluster_size")

JOBS = (
    "wordcount",
    "windows",
    "windows_csv",
    "windows_parquet",
    "python_split",
    "sol",
    "trickle",
    "remote_state",
    "remote_wordcount",
    "remote_windows",
    "remote_hop",
    "hop",
    "hop_latency",
    "blocking",
    "splits",
    "delivery",
    "checkpoint",
    "checkpoint_state",
    "persistent",
    "state_size",
    "scaling_pause",
    "recovery",
    "kafka_read",
    "kafka_write",
    "kafka_latency",
    "startup",
    "flights",
)
PARTS = (
    "nexmark",
    "parsers",
    "segment_format",
    "wheel",
    "actors",
    "remote",
    "clock",
    "run_app",
    "calls",
    "console",
    "soak",
)
"""Benchmarks of single parts: their own commands, whose text is shown as it is."""

FIELD = ("field_sol", "field_wordcount", "field_windows", "field_sessions", "field_join", "field_kafka")
"""Jobs beside all peers of the field, some of which take minutes for what others do in seconds."""

RESULTS = Path(".bench-results")


def main() -> int:
    """Run what is asked for; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="python -m benchmarks"
    )
    listed = ", ".join((*JOBS, *FIELD, *PARTS))
    parser.add_argument("names", nargs="*", help=f"{listed}, field, all, or none (the main table)")
    parser.add_argument("--quick", action="store_true", help="little data, one round")
    parser.add_argument("--brief", action="store_true", help="one round, only on the usual data")
    parser.add_argument("--rounds", type=int, help="runs of each contender (3)")
    parser.add_argument("--json", action="store_true", help="print all figures as one JSON object at the end")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="render figures into this Markdown page")
    given = parser.parse_args()
    names = chosen(given.names)
    is_main = not given.names
    brief = given.brief or is_main
    failed = [name for name in names if not measured(name, given.quick, brief, given.rounds)]
    results = kept()
    if is_main:
        shown = {name: results[name] for name in names if name in results}
        print(f"\n{as_main_table(shown)}\n", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "benchmarks.curves", "--quick", *MAIN_CURVES], check=False)
    if given.json:
        print(json.dumps({name: results[name] for name in names if name in results}))
    if given.write:
        given.write.write_text(write_into(given.write.read_text(), results))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def chosen(names: list[str]) -> list[str]:
    """The benchmarks that are meant; exits with an error for an unknown name."""
    if names == ["none"]:
        return []
    if names == ["all"]:
        return [*JOBS, *FIELD, *(part for part in PARTS if Path(__file__).with_name(f"{part}.py").exists())]
    names = [each for name in names for each in (FIELD if name == "field" else (name,))]
    known = (*JOBS, *FIELD, *PARTS)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no benchmark {unknown[0]!r}: one of {', '.join(known)}, field, all, none")
    return names or list(MAIN)


def measured(name: str, quick: bool, brief: bool, rounds: int | None) -> bool:
    """Run one benchmark, keep and show its figures; whether it went well."""
    print(f"\n== {name}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}", *(["--quick"] if quick else [])]
    if name not in PARTS:
        command += ["--json", *(["--brief"] if brief else []), *(["--rounds", str(rounds)] if rounds else [])]
    began_s = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    took_s = time.monotonic() - began_s
    result = parsed(name, done.stdout)
    if result is not None:
        RESULTS.mkdir(exist_ok=True)
        kept_as = RESULTS / f"{name}{'.quick' if quick else '.brief' if brief else ''}.json"
        kept_as.write_text(json.dumps({**result, "took_s": round(took_s, 1)}, indent=1))
        print(as_text(result), file=sys.stderr)
    print(f"({took_s:.0f} s)", file=sys.stderr)
    return done.returncode == 0


def parsed(name: str, output: str) -> dict[str, Any] | None:
    """What a benchmark printed, as figures, as a table in Markdown or as text; None when there is nothing."""
    if not output.strip():
        return None
    if name in PARTS:
        return {"job": name, "markdown" if output.lstrip().startswith("|") else "text": output}
    result: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return result


def kept() -> dict[str, dict[str, Any]]:
    """All figures in `.bench-results` by benchmark; quick and brief ones only where there are no others."""
    found: dict[str, dict[str, Any]] = {}
    for ending in (".quick", ".brief", ""):
        for file in sorted(RESULTS.glob("*.json")) if RESULTS.is_dir() else []:
            if Path(file.stem).suffix == ending:
                result = json.loads(file.read_text())
                found[result["job"]] = result
    return found


if __name__ == "__main__":
    raise SystemExit(main())
