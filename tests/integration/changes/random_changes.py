"""Random versions of an application, and random changes between them.

Every fragment marks its messages with the version of its own code, so what the sinks show says which messages
each version took; `random_model` says which ones it had to take.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from shop import SCHEMA, Mark
from timed import DISORDER

from drivetrain import Application, agg, sinks, sources, windows
from drivetrain.api.graph_edits import attached, removed, replaced
from drivetrain.api.graphs.graph import Graph

BRANCHES = 2
WINDOWS = 2
"""How many branches, and how many fragments with windows, may come and go."""
TIMED = ("read", "hop", "branch", "after", "fails")
"""What may change at an event time: no query restarts then, and no fragment starts or leaves."""
PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from random_changes import Drawn, drawn_app
app = drawn_app({directory!r}, {drawn!r})
"""


@dataclass(frozen=True)
class Drawn:
    """A version: the marks of the code in its fragments, and which branches and windows it has.

    A branch shows the messages whose n leaves `rest` when divided by `by`. Code that `fails` does so with
    every message.
    """

    read: int = 1
    hop: int = 1
    trunk: int = 1
    after: int = 1
    branches: tuple[tuple[int, int, int], ...] = ()  # (which, by, rest)
    windows: tuple[int, ...] = (0,)
    fails: bool = False


def next_of(drawn: Drawn, code: int, random: Random, *, timed: bool = False) -> Drawn:
    """Another version, one or two of whose parts are changed to the code `code`.

    One that is `timed` can take effect at an event time.
    """
    kinds = ["read", "hop", "branch", "window", "fails", *(["trunk", "after"] if drawn.windows else [])]
    kinds = [kind for kind in kinds if kind in TIMED] if timed else kinds
    changed = drawn
    for kind in random.sample(kinds, random.choice((1, 1, 2))):
        match kind:
            case "branch":
                which = random.randrange(BRANCHES)
                kept = [one for one in changed.branches if one[0] != which]
                if len(kept) == len(changed.branches) or random.random() < 0.4:
                    kept.append((which, 2, random.randrange(2)))
                changed = dataclasses.replace(changed, branches=tuple(sorted(kept)), read=code)
            case "window":
                which = random.randrange(WINDOWS)
                has = set(changed.windows) ^ {which}
                changed = dataclasses.replace(changed, windows=tuple(sorted(has)), read=code)
            case "fails":  # nothing else is new in it: what new sinks show is not the question here
                return dataclasses.replace(drawn, fails=True, read=code)
            case _:
                marks: dict[str, Any] = {kind: code}
                changed = dataclasses.replace(changed, **marks)
    return changed


# -- the application ---------------------------------------------------------------------------------------


def _marked(code: int, *, fails: bool = False) -> Any:
    def marked(row: Any) -> Mark:
        if fails:
            raise ValueError(f"message {row.n} cannot be marked")
        return Mark(row.n * 100 + code)

    return marked


def _with_branch(place: Path, code: int, branch: tuple[int, int, int], read: Any) -> None:
    which, by, rest = branch
    kept = read.filter(f"n % {by} = {rest}", name=f"kept{which}")
    kept = kept.select(mark=f"n * 100 + {code}", step=f"chosen{which}")
    kept.sink(sinks.json(place / f"branch{which}"), name=f"branch{which}")


def _with_window(place: Path, trunk: int, after: int, which: int, read: Any) -> None:
    begun = read.filter("n >= 0", name=f"begin{which}").cut()
    windowed = begun.map(_marked(trunk), name=f"trunk{which}").window(windows.tumbling(f"{which + 1} h"))
    counted = windowed.aggregate(n=agg.count(), marks=agg.collect_set("mark"), step=f"window{which}")
    shown = counted.select(
        n="n",
        marks="marks",
        start="unix_millis(window_start)",
        code=f"n * 0 + {after}",
        step=f"shown{which}",
    )
    shown.sink(sinks.json(place / f"windows{which}"), name=f"windows{which}_out")


def drawn_app(directory: Path | str, drawn: Drawn) -> Application:
    """The application in a version."""
    place = Path(directory)
    app = Application("drawn")
    source = sources.json(place / "in", schema=SCHEMA, event_time="at", max_disorder=DISORDER, watch=True)
    read = app.read(source, name="read")
    marked = read.map(_marked(drawn.read, fails=drawn.fails), name="mark")
    marked.sink(sinks.json(place / "marked"), name="marked_out")
    hopped = read.filter("n >= 0", name="hop").cut().map(_marked(drawn.hop), name="hopped")
    hopped.sink(sinks.json(place / "hopped"), name="hopped_out")
    for branch in drawn.branches:
        _with_branch(place, drawn.read, branch, read)
    for which in drawn.windows:
        _with_window(place, drawn.trunk, drawn.after, which, read)
    return app


def program(directory: Path, drawn: Drawn) -> Path:
    """The application as a file for the command line."""
    file = directory / "drawn.py"
    file.write_text(PROGRAM.format(folder=str(Path(__file__).parent), directory=str(directory), drawn=drawn))
    return file


# -- edits of the graph that runs ----------------------------------------------------------------------------


def edited(graph: Graph, directory: Path, before: Drawn, after: Drawn) -> Graph | None:
    """The graph of a version as `attach`, `remove` and `replace` make it from that of the version before.

    None: they cannot, as a part differs that has no processor of its own.
    """
    has_other_windows = any(getattr(before, part) != getattr(after, part) for part in ("trunk", "after"))
    if before.windows and has_other_windows:
        return None
    for edit in _edits(directory, before, after):
        graph = edit(graph)
    return graph


def _edits(place: Path, before: Drawn, after: Drawn) -> list[Callable[[Graph], Graph]]:
    left = set(before.windows) - set(after.windows)
    edits: list[Callable[[Graph], Graph]] = [partial(removed, id=f"begin{which}") for which in left]
    for which in set(after.windows) - set(before.windows):
        more = partial(_with_window, place, after.trunk, after.after, which)
        edits.append(partial(attached, to="read", attach=more))
    gone = before.branches if after.read != before.read else ()
    edits += [partial(removed, id=f"kept{which}") for which, _, _ in gone]
    for branch in after.branches if after.read != before.read else ():
        edits.append(partial(attached, to="read", attach=partial(_with_branch, place, after.read, branch)))
    if after.read != before.read:
        mark = _marked(after.read, fails=after.fails)
        edits.append(partial(replaced, id="mark", replace=lambda read: read.map(mark)))
    if after.hop != before.hop:
        hopped = _marked(after.hop)
        edits.append(partial(replaced, id="hopped", replace=lambda hop: hop.map(hopped)))
    return edits
