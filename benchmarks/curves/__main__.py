"""Measures how cost grows with one quantity at a time, fits a model to it, and draws both.

Each point is a run in a process of its own. The figures are kept in `.bench-results/curves/`: a run that was
interrupted continues, and `--draw` makes the tables and pictures again from what is kept.

    python -m benchmarks.curves                                    # all curves, an hour
    python -m benchmarks.curves batch_rows cluster_size            # some
    python -m benchmarks.curves --quick                            # few points each, five minutes
    python -m benchmarks.curves --draw --write docs/benchmarks.md  # only pictures and tables, of what is kept
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.curves import (
    batch_rows,
    channel_backlog,
    cluster_size,
    fragment_count,
    key_count,
    open_windows,
    state_partitions,
)
from benchmarks.curves.curve import Curve, Figure, fitted
from benchmarks.curves.drawing import draw, points_of
from benchmarks.measure import machine, run_watched
from benchmarks.report import number, write_into

CURVES: Mapping[str, Curve] = {
    module.CURVE.name: module.CURVE
    for module in (
        batch_rows,
        fragment_count,
        key_count,
        open_windows,
        state_partitions,
        channel_backlog,
        cluster_size,
    )
}
RESULTS = Path(".bench-results/curves")
PICTURES = Path("docs/curves")


def main() -> int:
    """Measure, fit and draw what is asked for; 1 if a point could not be measured."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="python -m benchmarks.curves",
    )
    parser.add_argument("names", nargs="*", metavar="CURVE", help=f"{', '.join(CURVES)} (all)")
    parser.add_argument("--quick", action="store_true", help="few points, the cheap ones")
    parser.add_argument("--points", metavar="X,X", help="only these values of the quantity")
    parser.add_argument("--again", action="store_true", help="also measure the points that are kept")
    parser.add_argument("--draw", action="store_true", help="measure nothing: draw what is kept")
    parser.add_argument("--json", action="store_true", help="print all points and models as one JSON object")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="write tables into this page, pictures beside it"
    )
    parser.add_argument("--point", nargs=2, metavar=("CURVE", "X"), help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.point:
        name, x = given.point
        print("\n" + json.dumps(CURVES[name].measure(int(x), given.work)), flush=True)
        return 0
    unknown = [name for name in given.names if name not in CURVES]
    if unknown:
        parser.error(f"no curve {unknown[0]!r}: one of {', '.join(CURVES)}")
    chosen = [CURVES[name] for name in given.names or CURVES]
    failed = (
        0
        if given.draw
        else sum(measure_all(curve, wanted(curve, given), again=given.again) for curve in chosen)
    )
    shown = {curve.name: (curve, kept(curve)) for curve in chosen if kept(curve)}
    pictures = given.write.parent / "curves" if given.write else RESULTS
    for curve, measured in shown.values():
        draw(curve, measured, pictures / f"{curve.name}.svg")
        print(as_text(curve, measured), file=sys.stderr)
    print(f"pictures: {pictures}/*.svg", file=sys.stderr)
    if given.json:
        print(json.dumps({name: as_json(*one) for name, one in shown.items()}))
    if given.write:
        blocks = {f"curve_{name}": {"markdown": as_markdown(*one)} for name, one in shown.items()}
        given.write.write_text(write_into(given.write.read_text(), blocks))
    return 1 if failed else 0


def wanted(curve: Curve, given: argparse.Namespace) -> Sequence[int]:
    """The values of the quantity that are asked for."""
    if given.points:
        return [int(x) for x in given.points.split(",")]
    return curve.quick_points if given.quick else curve.points


def measure_all(curve: Curve, points: Sequence[int], *, again: bool) -> int:
    """Measure points of a curve, in this order, and keep each; how many could not be measured."""
    failed, known = 0, set() if again else kept(curve).keys()
    print(f"\n== {curve.title}", file=sys.stderr, flush=True)
    data.root().mkdir(parents=True, exist_ok=True)
    for x in points:
        if x in known:
            continue
        work = Path(tempfile.mkdtemp(prefix=f"work-{curve.name}-", dir=data.root()))
        command = [
            sys.executable,
            "-m",
            "benchmarks.curves",
            "--point",
            curve.name,
            str(x),
            "--work",
            str(work),
        ]
        try:
            output, outside = run_watched(command, work / "stderr.txt")
            figures = {**outside, **json.loads(output.strip().splitlines()[-1])}
        except Exception as error:  # noqa: BLE001 - the other points are still worth having
            print(f"{x:,}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            failed += 1
            continue
        finally:
            shutil.rmtree(work, ignore_errors=True)
        RESULTS.mkdir(parents=True, exist_ok=True)
        record = {"x": x, "figures": figures, "machine": machine()}
        (RESULTS / f"{curve.name}-{x}.json").write_text(json.dumps(record))
        told = ", ".join(
            f"{one.name}: {number(figures[one.key])}" for one in curve.figures if one.key in figures
        )
        print(f"{x:,}: {told}", file=sys.stderr, flush=True)
    return failed


def kept(curve: Curve) -> dict[int, dict[str, float]]:
    """The measured figures of a curve by x."""
    records = [json.loads(file.read_text()) for file in RESULTS.glob(f"{curve.name}-*.json")]
    return {record["x"]: record["figures"] for record in sorted(records, key=lambda record: record["x"])}


def models(curve: Curve, measured: Mapping[int, Mapping[str, float]]) -> list[tuple[Figure, str]]:
    """What the model of each figure says, as a sentence; two points fit any model."""
    said = []
    for figure in curve.figures:
        points = points_of(figure, measured)
        if figure.has_model and len(points) > 2:
            model = fitted(points)
            line = f"{number(model.fixed)} + {number(model.each)} × {curve.quantity}"
            said.append((figure, f"{line} (a point is off by {model.worst:.0%} at most)"))
    return said


def as_text(curve: Curve, measured: Mapping[int, Mapping[str, float]]) -> str:
    """The models as lines for a terminal."""
    lines = [f"  {figure.name} = {line}" for figure, line in models(curve, measured)]
    return "\n".join([f"{curve.title}", *lines])


def as_markdown(curve: Curve, measured: Mapping[int, Mapping[str, float]]) -> str:
    """The picture, the points and the models of a curve."""
    figures = [figure for figure in curve.figures if points_of(figure, measured)]
    rows = [
        f"| {x:,} | " + " | ".join(number(one[f.key]) if f.key in one else "" for f in figures) + " |"
        for x, one in measured.items()
    ]
    return "\n".join(
        [
            f"![{curve.title}](curves/{curve.name}.svg)",
            "",
            f"| {curve.quantity} | " + " | ".join(figure.name for figure in figures) + " |",
            "|---:|" + "---:|" * len(figures),
            *rows,
            "",
            *(f"- {figure.name} = {line}" for figure, line in models(curve, measured)),
        ]
    )


def as_json(curve: Curve, measured: Mapping[int, Mapping[str, float]]) -> dict[str, Any]:
    """Points and models, for programs."""
    fits = {
        figure.key: vars(fitted(points))
        for figure in curve.figures
        if figure.has_model and len(points := points_of(figure, measured)) > 1
    }
    return {"title": curve.title, "quantity": curve.quantity, "points": dict(measured), "models": fits}


if __name__ == "__main__":
    raise SystemExit(main())
