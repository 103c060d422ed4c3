"""Random versions of an application, random changes between them, and a model of what must be shown.

Every fragment marks its messages with the version of its own code, so the sinks show which messages each
version took: its span. The model applies each version to the messages of its span, and nothing else.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from shop import SCHEMA, Mark, rows

from drivetrain import Application, agg, sinks, sources, windows

BRANCHES = 2
WINDOWS = 2
"""How many branches, and how many fragments with windows, may come and go."""


@dataclass(frozen=True)
class Drawn:
    """A version: the marks of the code in its fragments, and which branches and windows it has.

    A branch shows the messages whose n leaves `rest` when divided by `by`.
    """

    read: int = 1
    hop: int = 1
    trunk: int = 1
    after: int = 1
    branches: tuple[tuple[int, int, int], ...] = ()  # (which, by, rest)
    windows: tuple[int, ...] = (0,)
    fails: bool = False


def next_of(drawn: Drawn, code: int, random: Random) -> Drawn:
    """Another version, one or two of whose parts are changed to the code `code`."""
    kinds = ["read", "hop", "branch", "window", "fails", *(["trunk", "after"] if drawn.windows else [])]
    changed = dataclasses.replace(drawn, fails=False)
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
            case "fails":
                changed = dataclasses.replace(changed, fails=True, read=code)
            case _:
                marks: dict[str, Any] = {kind: code}
                changed = dataclasses.replace(changed, **marks)
    if changed.fails:  # nothing else is new in it: results of new sinks are not tested here
        changed = dataclasses.replace(drawn, fails=True, read=code)
    return changed


def _marker(code: int, *, fails: bool = False) -> Any:
    def marked(row: Any) -> Mark:
        if fails and row.n % 3 == 1:  # one in every file: the first batch with messages shows it
            raise ValueError(f"message {row.n} cannot be marked")
        return Mark(row.n * 100 + code)

    return marked


def drawn_app(directory: Path | str, drawn: Drawn) -> Application:
    """The application in a version."""
    place = Path(directory)
    app = Application("drawn")
    read = app.read(sources.json(place / "in", schema=SCHEMA, event_time="at", watch=True), name="read")
    marked = read.map(_marker(drawn.read, fails=drawn.fails), name="mark")
    marked.sink(sinks.json(place / "marked"), name="marked_out")
    for which, by, rest in drawn.branches:
        kept = read.filter(f"n % {by} = {rest}", name=f"kept{which}")
        kept = kept.select(mark=f"n * 100 + {drawn.read}", step=f"chosen{which}")
        kept.sink(sinks.json(place / f"branch{which}"), name=f"branch{which}")
    hopped = read.filter("n >= 0", name="hop").cut().map(_marker(drawn.hop), name="hopped")
    hopped.sink(sinks.json(place / "hopped"), name="hopped_out")
    for which in drawn.windows:
        begun = read.filter("n >= 0", name=f"begin{which}").cut()
        trunk = begun.map(_marker(drawn.trunk), name=f"trunk{which}")
        windowed = trunk.window(windows.tumbling(f"{which + 1} h")).aggregate(
            n=agg.count(), marks=agg.collect_set("mark"), step=f"window{which}"
        )
        shown = windowed.filter(f"n > -{drawn.after}", name=f"shown{which}")
        shown.sink(sinks.json(place / f"windows{which}"), name=f"windows{which}_out")
    return app


# -- the model ---------------------------------------------------------------------------------------------


def marks_in(place: Path) -> dict[int, int]:
    """The version that each message went through, from a sink that shows all; each is shown once."""
    found = [row["mark"] for row in rows(place)]
    assert len({mark // 100 for mark in found}) == len(found), f"a message is shown twice in {place.name}"
    return {mark // 100: mark % 100 for mark in sorted(found)}


def check_order(taken: dict[int, int], codes: list[int], what: str) -> None:
    """The spans of the versions follow one another as the versions did."""
    at = 0
    for n in sorted(taken):
        while at < len(codes) and codes[at] != taken[n]:
            at += 1
        assert at < len(codes), f"{what}: message {n} went through {taken[n]}, in {codes}"


@dataclass
class Model:
    """What must be shown in `place`, if `messages` were fed and `versions` were in force, in that order."""

    place: Path
    versions: list[Drawn]
    messages: int

    def is_complete(self) -> bool:
        """Whether everything that must be shown is shown; raises AssertionError for what must never be
        shown."""
        read, hop = marks_in(self.place / "marked"), marks_in(self.place / "hopped")
        check_order(read, [drawn.read for drawn in self.versions], "read")
        check_order(hop, [drawn.hop for drawn in self.versions], "hop")
        if len(read) < self.messages or len(hop) < self.messages:
            return False
        assert set(read) == set(hop) == set(range(self.messages))
        by_code = {drawn.read: drawn for drawn in self.versions}
        for which in range(BRANCHES):
            wanted = Counter(n * 100 + code for n, code in read.items() if _shows(by_code[code], which, n))
            found = Counter(row["mark"] for row in rows(self.place / f"branch{which}"))
            if found != wanted:
                assert not found - wanted, f"branch {which} shows {found - wanted}"
                return False
        return all(self._has_windows(which, read, by_code) for which in range(WINDOWS))

    def _has_windows(self, which: int, read: dict[int, int], by_code: dict[int, Drawn]) -> bool:
        size = 2 * (which + 1)  # two messages an hour
        span, wanted = self._spans(which, read, by_code), Counter[tuple[int, ...]]()
        for first, end in span:
            whole = 0 if first == 0 else ((first - 1) // size + 1) * size
            last = end if end < self.messages else (self.messages - 1) // size * size
            for begin in range(whole, last, size):
                wanted[tuple(range(begin, min(begin + size, end)))] += 1
        shown: list[dict[str, Any]] = list(rows(self.place / f"windows{which}"))
        found = Counter(tuple(sorted(mark // 100 for mark in row["marks"])) for row in shown)
        assert all(row["n"] == len(row["marks"]) for row in shown), "a message counts twice"
        assert not found - wanted, f"window {which} shows {found - wanted}, of {span}"
        taken = {mark // 100: mark % 100 for row in shown for mark in row["marks"]}
        check_order(taken, [drawn.trunk for drawn in self.versions], f"trunk {which}")
        return found == wanted

    def _spans(self, which: int, read: dict[int, int], by_code: dict[int, Drawn]) -> list[tuple[int, int]]:
        """The spans of messages during which the window existed."""
        spans: list[tuple[int, int]] = []
        first: int | None = None
        for n in range(self.messages):
            has = which in by_code[read[n]].windows
            if has and first is None:
                first = n
            elif not has and first is not None:
                spans.append((first, n))
                first = None
        return spans if first is None else [*spans, (first, self.messages)]


def _shows(drawn: Drawn, which: int, n: int) -> bool:
    return any(one == which and n % by == rest for one, by, rest in drawn.branches)
