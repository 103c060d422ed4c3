"""Makes a failing recipe smaller, for as long as it fails in the same way.

Greedy: the first smaller recipe that fails is taken, and its smaller ones are tried next, until none of
them fails or all tries are used up. The large steps (one sink, half of the messages) come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .model import keeping
from .recipe import (
    AsOfJoin,
    Deduplicate,
    Early,
    Facts,
    Join,
    Keyed,
    Late,
    Match,
    Persistent,
    Recipe,
    Sink,
    Source,
    Step,
    Target,
    Task,
    Top,
    Topic,
    Union,
    Window,
    facts_of,
)

Failing = Callable[[Recipe], str | None]
"""Returns the failure of a recipe; None if it does not fail."""


def shrunk(recipe: Recipe, failure: str, failing: Failing, tries: int) -> tuple[Recipe, str]:
    """The smallest recipe found that fails as `failure` does, and how it fails."""
    wanted = signature(failure)
    while True:
        for smaller in smaller_ones(recipe):
            if tries == 0:
                return recipe, failure
            tries -= 1
            told = failing(smaller)
            if told is not None and signature(told) == wanted:
                recipe, failure = smaller, told
                break
        else:
            return recipe, failure


def signature(failure: str) -> str:
    """The kind of a failure: a failure of another kind is another finding."""
    if "Traceback" not in failure:
        return "does not end" if "did not end" in failure else "rows"
    errors = [line for line in failure.splitlines() if line[:1].isalpha() and ":" in line.split(" ")[0]]
    return errors[-1].split(":")[0] if errors else "error"


def smaller_ones(recipe: Recipe) -> Iterator[Recipe]:
    """Smaller recipes, much smaller ones first; each can be built."""
    for smaller in _candidates(recipe):
        pruned = _pruned(smaller)
        if pruned is not None and pruned != recipe and is_sound(pruned):
            yield pruned


def _candidates(recipe: Recipe) -> Iterator[Recipe]:
    if len(recipe.sinks) > 1:
        for sink in recipe.sinks:
            yield replace(recipe, sinks=(sink,))
        for i in range(len(recipe.sinks)):
            yield replace(recipe, sinks=recipe.sinks[:i] + recipe.sinks[i + 1 :])
    yield replace(recipe, crashes=())
    yield replace(recipe, crashes=recipe.crashes[:1])
    for i in range(len(recipe.steps)):
        yield _without_step(recipe, i)
    for i, source in enumerate(recipe.sources):
        for smaller in _smaller_sources(source):
            yield replace(recipe, sources=(*recipe.sources[:i], smaller, *recipe.sources[i + 1 :]))
    yield replace(recipe, delivery="exactly once")
    for name, _ in recipe.sets:
        yield replace(recipe, sets=tuple(pair for pair in recipe.sets if pair[0] != name))
    for i, step in enumerate(recipe.steps):
        for simpler in _simpler_steps(step):
            yield replace(recipe, steps=(*recipe.steps[:i], simpler, *recipe.steps[i + 1 :]))
    for i, sink in enumerate(recipe.sinks):
        for easier in _simpler_sinks(sink):
            yield replace(recipe, sinks=(*recipe.sinks[:i], easier, *recipe.sinks[i + 1 :]))


def _smaller_sources(source: Source) -> Iterator[Source]:
    files = source.files
    if source.kind != "generate":
        for i in range(len(files)):
            if len(files) > 1:
                yield replace(source, files=(*files[:i], *files[i + 1 :]))
        for i, rows in enumerate(files):
            half = len(rows) // 2
            parts = (rows[:half], rows[half:]) if half else ()
            singles = tuple((*rows[:j], *rows[j + 1 :]) for j in range(len(rows)) if 1 < len(rows) <= 6)
            for fewer in (*parts, *singles):
                yield replace(source, files=(*files[:i], fewer, *files[i + 1 :]))
        yield replace(source, files=(source.rows,))
    elif len(source.rows) > 2:
        yield replace(source, files=(source.rows[: max(2, len(source.rows) // 2)],))
    yield replace(source, bad=0)
    yield replace(source, packed=False)
    if source.places:
        yield replace(source, places=0, files=tuple(tuple((*r[:3], 0) for r in rows) for rows in files))
    yield replace(source, topic=Topic())
    yield replace(source, topic=replace(source.topic, count=1))
    yield replace(source, topic=replace(source.topic, sent="plainly"))
    if source.kind not in ("parquet", "generate"):
        yield replace(source, kind="parquet", packed=False, bad=0, topic=Topic())


def _simpler_steps(step: Step) -> Iterator[Step]:
    yield replace(step, cut=False)
    if isinstance(step, Window):
        yield replace(step, how="count")
        yield replace(step, by="key")
        yield replace(step, lateness_ms=0, emission="discarding")
        yield replace(step, as_sql=False)
    if isinstance(step, Task):
        yield replace(step, parallelism=1)


def _simpler_sinks(sink: Sink) -> Iterator[Sink]:
    yield replace(sink, target=Target())
    if sink.kind not in ("parquet", "none"):
        yield Sink(sink.stream, "parquet")


# -- keeping recipes whole ------------------------------------------------------------------------------


def _without_step(recipe: Recipe, i: int) -> Recipe:
    """The recipe without step `i`: the steps after it follow its first input instead."""
    gone = len(recipe.sources) + i
    instead = recipe.steps[i].inputs[0]
    return _renumbered(recipe, {gone: instead}, [step for j, step in enumerate(recipe.steps) if j != i], gone)


def _renumbered(recipe: Recipe, instead: dict[int, int], steps: list[Step], gone: int) -> Recipe:
    def moved(stream: int) -> int:
        stream = instead.get(stream, stream)
        return stream - 1 if stream > gone else stream

    return replace(
        recipe,
        steps=tuple(replace(step, inputs=tuple(moved(s) for s in step.inputs)) for step in steps),
        sinks=tuple(replace(sink, stream=moved(sink.stream)) for sink in recipe.sinks),
    )


def _pruned(recipe: Recipe) -> Recipe | None:
    """The recipe without steps and sources that lead to no sink; None if nothing is left."""
    while True:
        needed = {sink.stream for sink in recipe.sinks} | {s for step in recipe.steps for s in step.inputs}
        spare = [s for s in recipe.numbers if s not in needed]
        if not spare:
            return recipe if recipe.sources and recipe.sinks else None
        gone = spare[-1]
        if gone >= len(recipe.sources):
            at = gone - len(recipe.sources)
            steps = [step for j, step in enumerate(recipe.steps) if j != at]
        else:
            steps = list(recipe.steps)
            kept = (*recipe.sources[:gone], *recipe.sources[gone + 1 :])
            if not kept:
                return None
            recipe = replace(recipe, sources=kept)
        recipe = _renumbered(recipe, {}, steps, gone)


def is_sound(recipe: Recipe) -> bool:
    """Whether a recipe makes a valid application that its model covers."""
    facts = facts_of(recipe)
    if any(s.kind == "generate" and len(s.rows) < 2 for s in recipe.sources):
        return False
    if any(s.topic.count > max(s.places, 1) for s in recipe.sources):
        return False
    if not all(_keeps_promise(s) and (_moves_clock(s) or not recipe.watched) for s in recipe.sources):
        return False
    for step in recipe.steps:
        inputs = [facts[i] for i in step.inputs]
        if isinstance(step, Early | Late):
            if not _has_beside(recipe, facts, step):
                return False
        elif any(f.is_end for f in inputs):
            return False
        if _needs_time(step) and not all(f.timed for f in inputs):
            return False
        if isinstance(step, Join | AsOfJoin | Union) and len(set(step.inputs)) < len(step.inputs):
            return False
        if inputs[0].loose and isinstance(step, Window) and not _counts(step):
            return False
    asked = [i for i in recipe.numbers if not recipe.source_of(i) and _is_asked(recipe.step(i))]
    return all(
        (sink.kind == "none") == (sink.stream in asked) for sink in recipe.sinks if sink.stream in asked
    )


def _has_beside(recipe: Recipe, facts: list[Facts], step: Early | Late) -> bool:
    """Whether the input of `step` is a window that has early results or late messages."""
    window = None if recipe.source_of(step.inputs[0]) else recipe.step(step.inputs[0])
    if not isinstance(window, Window):
        return False
    is_loose = facts[window.inputs[0]].loose
    if isinstance(step, Late):
        return is_loose
    return (
        not is_loose
        and not window.as_sql
        and window.how in ("count", "counted")
        and window.kind in ("tumbling", "sliding")
    )


def _counts(step: Window) -> bool:
    """Whether a window's results only grow with its messages, so that they can be compared with bounds."""
    return step.kind in ("tumbling", "sliding") and step.how in ("count", "tally")


def _keeps_promise(source: Source) -> bool:
    return source.breaks_promise or keeping(source) == source


def _moves_clock(source: Source) -> bool:
    """Whether all partitions of an endless topic reach the same time, or are silent and become idle."""
    if source.kind != "kafka":
        return True
    newest = {place: max(row[0] for row in source.rows if row[3] == place) for *_, place in source.rows}
    is_silent = len(newest) < max(source.places, 1)
    return len(set(newest.values())) == 1 and (not is_silent or source.topic.idle_ms > 0)


def _is_asked(step: Step) -> bool:
    return isinstance(step, Persistent) and step.how == "asked"


def _needs_time(step: Step) -> bool:
    if isinstance(step, Window | Top):
        return step.kind != "everything"
    return isinstance(step, Deduplicate | Join | AsOfJoin | Persistent | Keyed | Match) or (
        isinstance(step, Task) and step.how == "ticks"
    )
