"""The steps of a recipe as program text."""

from __future__ import annotations

from .program_keyed import as_of_lines, keyed_lines
from .program_patterns import match_lines, table_join_lines
from .recipe import (
    Add,
    AsOfJoin,
    Deduplicate,
    Early,
    Facts,
    Filter,
    FlatMap,
    Join,
    Keyed,
    Late,
    Log,
    Map,
    Match,
    Persistent,
    Recipe,
    Repartition,
    Sample,
    Step,
    TableJoin,
    Task,
    Top,
    Union,
    Window,
)

PYTHON = {"string": "str", "bigint": "int", "double": "float", "array<string>": "list[str]"}
EXPRESSIONS = {"string": "substr(key, 1, 1)", "bigint": "pmod(key, 2)"}
"""Keys computed from keys, for these types only."""

AGGREGATES = {
    "sum": ('agg.sum("n")', "n"),
    "count": ("agg.count()", "n"),
    "counted": ('agg.count("n")', "n"),
    "min": ('agg.min("n")', "n"),
    "max": ('agg.max("n")', "n"),
    "mean": ('agg.mean("n")', "cast(floor(n) as bigint)"),
    "ratio": ('agg.sum("n") / agg.count()', "cast(floor(n) as bigint)"),
    "set": ('agg.collect_set("n")', "cast(size(n) as bigint)"),
    "top": ('agg.top_k("n", by="n", k=2)', "get(n, 0).value"),
    "distinct": ('agg.distinct_count("n")', "n"),
    "median": ('F.median("n")', "cast(floor(n * 2) as bigint)"),
    "first": ('agg.first("n")', "n"),
    "last": ('agg.last("n")', "n"),
    "several": ('agg.sum("n"), c=agg.count(), lo=agg.min("n"), hi=agg.max("n")', "n"),
}
"""The text of each aggregation, and of the conversion of its result to a whole number."""

SQL_AGGREGATES = {
    "sum": "sum(n) AS n",
    "count": "count(*) AS n",
    "counted": "count(n) AS n",
    "min": "min(n) AS n",
    "max": "max(n) AS n",
    "mean": "avg(n) AS n",
    "ratio": "sum(n) / count(*) AS n",
    "several": "sum(n) AS n, count(*) AS c, min(n) AS lo, max(n) AS hi",
}
"""The aggregations that are also written in SQL."""

PYTHON_AGGREGATES = ("monoid", "reduce", "fold")


def step_lines(  # noqa: C901 - one case for each kind of step
    recipe: Recipe, facts: list[Facts], i: int, step: Step
) -> list[str]:
    """Write stream `i`."""
    names = [f"s{j}" + ('.select("key", "n")' if facts[j].extras else "") for j in step.inputs]
    first, kind = names[0], recipe.key_type
    match step:
        case Filter():
            return _filter(i, f"s{step.inputs[0]}", step)
        case Add():
            return _add(i, f"s{step.inputs[0]}", step)
        case Map():
            return _map(i, first, step, kind)
        case FlatMap():
            return _flat_map(i, first, step, kind)
        case Log():
            return [f's{i} = s{step.inputs[0]}.log(2, name="step{i}")']
        case Repartition():
            by = '"key", ' if step.by_key else ""
            return [f's{i} = s{step.inputs[0]}.repartition({step.tasks}, {by}name="step{i}")']
        case Match():
            return match_lines(i, first, step)
        case Sample():
            options = f'"n", seed={step.seed}, name="step{i}"'
            return [f"s{i} = s{step.inputs[0]}.sample({step.percent} / 100, {options})"]
        case Union(fills=True):
            more = f'{first}.with_columns(step="more{i}", m=lit(1))'
            made = f'{more}.union({", ".join(names[1:])}, missing="null", name="step{i}")'
            return [f's{i} = {made}.select("key", n="n + coalesce(m, 0)")']
        case Union():
            return [f's{i} = {first}.union({", ".join(names[1:])}, name="step{i}")']
        case Window(as_sql=True):
            return _sql_window(i, first, step, kind)
        case Window():
            return _window(i, first, step, kind)
        case Top():
            window = _window_text(Window(inputs=(), kind=step.kind, how="", **_sizes(step)))
            made = f'{first}.group_by("key").window({window}).top({step.most}, by="n", name="step{i}")'
            names = [] if step.kind == "everything" else ["window_start", "window_end"]
            columns = ", ".join(f'"{name}"' for name in ("key", "n", *names, "rank"))
            return [f"s{i} = {made}.select({columns})"]
        case Early():
            window = recipe.step(step.inputs[0])
            assert isinstance(window, Window)
            early = f'early_every("{step.every_ms} ms")' if step.every_ms else "early"
            return [f's{i} = w{step.inputs[0]}.{early}.select({_columns(window, kind)}, n="n")']
        case Late():
            return [f's{i} = w{step.inputs[0]}.late.select("key", "n")']
        case Deduplicate():
            return _deduplicate(i, first, step)
        case Join():
            right = f'{names[1]}.select("key", m="n")'
            options = f'on="key", within="{step.within_ms} ms", how="{step.how}", name="step{i}"'
            joined = f"{first}.join({right}, {options})"
            return [f's{i} = {joined}.select("key", n="n + coalesce(m, 0)")']
        case AsOfJoin():
            return as_of_lines(i, names[0], names[1], step)
        case Keyed():
            return keyed_lines(i, first, step, kind)
        case TableJoin():
            return table_join_lines(i, first, step, kind)
        case Task():
            return _task(i, first, step, kind)
        case Persistent():
            return _persistent(i, first, step, kind)
    raise AssertionError(step)


def _filter(i: int, first: str, step: Filter) -> list[str]:
    if step.how == "function":
        body = f"return m.n is not None and m.n % {step.modulo} != {step.rest}"
        return [*_function(f"keep{i}(m)", body), f's{i} = {first}.filter(keep{i}, name="step{i}")']
    text = f'"pmod(n, {step.modulo}) <> {step.rest}"'
    if step.how == "sql" and step.modulo == 3:
        statement = f'"SELECT * FROM this WHERE pmod(n, 3) <> {step.rest}"'
        return [f's{i} = {first}.sql({statement}, name="step{i}")']
    if step.how == "column":
        text = f'F.pmod("n", lit({step.modulo})) != {step.rest}'
    return [f's{i} = {first}.filter({text}, name="step{i}")']


def _add(i: int, first: str, step: Add) -> list[str]:
    if step.how == "function":
        body = f"return None if n is None else n + {step.more}"
        return [
            *_function(f"add{i}(n: int) -> int", body),
            f's{i} = {first}.with_columns(step="step{i}", n=add{i})',
        ]
    text = f'"n + {step.more}"' if step.how == "sql" else f'col("n") + {step.more}'
    return [f's{i} = {first}.with_columns(step="step{i}", n={text})']


def _map(i: int, first: str, step: Map, kind: str) -> list[str]:
    product = f"m.n * {step.factor}" if step.strict else f"None if m.n is None else m.n * {step.factor}"
    policy = ', on_error="dead_letter"' if step.strict else ""
    if step.how == "row":
        made = ["", "", f"class Pair{i}(NamedTuple):", f"    key: {PYTHON[kind]}", "    n: int", "", ""]
        made += _function(f"map{i}(m: Pair{i}) -> Pair{i}", f"return Pair{i}(m.key, {product})")
        return [*made, f's{i} = {first}.map(map{i}, name="step{i}"{policy})']
    if step.how == "tuple":
        made = _function(f"map{i}(m) -> tuple[{PYTHON[kind]}, int]", f"return m.key, {product}")
        return [*made, f's{i} = {first}.map(map{i}, name="step{i}"{policy}).select("key", n="value")']
    made = _function(f"map{i}(m)", f"return m.key, {product}")
    return [*made, f's{i} = {first}.map(map{i}, returns="key {kind}, n bigint", name="step{i}"{policy})']


def _flat_map(i: int, first: str, step: FlatMap, kind: str) -> list[str]:
    body = f"return [(m.key, m.n + i) for i in range(m.n % {step.most})] if m.n is not None else []"
    made = _function(f"several{i}(m)", body)
    return [*made, f's{i} = {first}.flat_map(several{i}, returns="key {kind}, n bigint", name="step{i}")']


def _window(i: int, first: str, step: Window, kind: str) -> list[str]:
    lines, grouped = _grouped(i, first, step, kind)
    name, grouped = f'name="step{i}"', f"{grouped}.window({_window_text(step)})"
    result = "n"
    match step.how:
        case "monoid":
            lines += _monoid(i)
            made = f'aggregate(step="step{i}", n=Sum{i}())'
        case "fold":
            lines += _function(f"more{i}(state, m)", "return state + (m.n or 0)")
            made, result = f"fold(lambda: 0, more{i}, returns=int, {name})", "value"
        case "tally":
            made, result = f"fold(lambda: 0, lambda state, m: state + 1, returns=int, {name})", "value"
        case "reduce":
            lines += ["", "", f"class Most{i}(NamedTuple):", "    n: int", "", ""]
            body = f"return Most{i}(max((x for x in (left.n, right.n) if x is not None), default=None))"
            lines += _function(f"most{i}(left: Most{i}, right: Most{i}) -> Most{i}", body)
            made = f"reduce(most{i}, {name})"
        case _:
            text, result = AGGREGATES[step.how]
            made = f'aggregate(step="step{i}", n={text})'
    return [*lines, f"w{i} = {grouped}.{made}", f's{i} = w{i}.select({_columns(step, kind)}, n="{result}")']


def _sql_window(i: int, first: str, step: Window, kind: str) -> list[str]:
    computed = SQL_AGGREGATES[step.how]
    names = [] if step.by == "nothing" else ["key"]
    if step.kind == "everything":
        statement = f"SELECT {', '.join([*names, computed])} FROM this GROUP BY {', '.join(names)}"
    else:
        sizes = f"'{step.size_ms} milliseconds'"
        sizes += f", '{step.slide_ms} milliseconds'" if step.kind == "sliding" else ""
        window = f"{'session_window' if step.kind == 'session' else 'window'}(timestamp(), {sizes})"
        bounds = [f"{window}.{end} AS window_{end}" for end in ("start", "end")]
        statement = f"SELECT {', '.join([*names, *bounds, computed])} FROM this"
        statement += f" GROUP BY {', '.join([*names, window])}"
    made = f'w{i} = {first}.sql("{statement}", name="step{i}")'
    result = AGGREGATES[step.how][1]
    return [made, f's{i} = w{i}.select({_columns(step, kind)}, n="{result}")']


def _columns(step: Window, kind: str) -> str:
    """The columns of a window's result, except n, that the next stream keeps."""
    names = [] if step.by == "nothing" else ["key"]
    names += [] if step.kind == "everything" else ["window_start", "window_end"]
    names += ["c", "lo", "hi"] if step.how == "several" else []
    columns = [f'"{name}"' for name in names]
    return ", ".join([*columns, *([f'key="cast(null as {kind})"'] if step.by == "nothing" else [])])


def _grouped(i: int, first: str, step: Window, kind: str) -> tuple[list[str], str]:
    match step.by:
        case "nothing":
            return [], first
        case "expression":
            return [], f'{first}.group_by(key="{EXPRESSIONS[kind]}")'
        case "function":
            body = "return None if key is None else " + ("key[:1]" if kind == "string" else "key % 2")
            made = _function(f"part{i}(key: {PYTHON[kind]}) -> {PYTHON[kind]}", body)
            return made, f"{first}.group_by(key=part{i})"
        case _:
            return [], f'{first}.group_by("key")'


def _window_text(step: Window) -> str:
    options = f', emission="{step.emission}"' if step.emission != "discarding" else ""
    if step.kind == "everything":
        return f"windows.everything({options[2:]})"
    options += f', allowed_lateness="{step.lateness_ms} ms"' if step.lateness_ms else ""
    if step.kind == "session":
        return f'windows.session("{step.size_ms} ms")'
    sizes = f'"{step.size_ms} ms"' + (f', "{step.slide_ms} ms"' if step.kind == "sliding" else "")
    return f"windows.{step.kind}({sizes}{options})"


def _sizes(step: Top) -> dict[str, int]:
    return {"size_ms": step.size_ms, "slide_ms": step.slide_ms}


def _monoid(i: int) -> list[str]:
    return [
        "",
        "",
        f"class Sum{i}(Monoid):",
        "    def zero(self):",
        "        return 0",
        "",
        "    def add(self, state, message):",
        "        return state + (message.n or 0)",
        "",
        "    def plus(self, left, right):",
        "        return left + right",
        "",
        "    def result(self, state) -> int:",
        "        return state",
        "",
        "",
    ]


def _deduplicate(i: int, first: str, step: Deduplicate) -> list[str]:
    within = f'within="{step.within_ms} ms", name="step{i}"'
    if step.exact:
        seen = f'{first}.with_columns(step="at{i}", at=timestamp()).deduplicate("key", "n", "at", {within})'
        return [f's{i} = {seen}.select("key", "n")']
    # Of two messages at one instant either may be the first, so the columns that are kept must be the same in
    # both.
    return [f's{i} = {first}.deduplicate("key", {within}).select("key", n=F.unix_millis(timestamp()))']


def _task(i: int, first: str, step: Task, kind: str) -> list[str]:
    options = f'parallelism={step.parallelism}, name="step{i}"'
    head = ["", "", f"class Task{i}(Task):"]
    output = f'    output = "key {kind}, n bigint"'
    if step.how == "batch":
        body = [output, "", "    def on_batch(self, batch):", "        yield batch", "", ""]
        return [*head, *body, f"s{i} = {first}.process(Task{i}, {options})"]
    if step.how == "each":
        body = [output, "", "    def on_next(self, m):"]
        body += ["        yield m.key, None if m.n is None else m.n + 1", "", ""]
        return [*head, *body, f"s{i} = {first}.process(Task{i}, {options})"]
    if step.how == "outputs":
        body = [
            output,
            f'    outputs = {{"others": "less bigint, of {kind}"}}',
            "",
            "    def on_next(self, m):",
            "        is_even = m.n is not None and m.n % 2 == 0",
            '        yield (m.key, m.n) if is_even else NamedOutput("others", (m.n and m.n - 1, m.key))',
            "",
            "",
        ]
        others = f't{i}.output("others").select(key="of", n="less")'
        made = [f"t{i} = {first}.process(Task{i}, {options})", f"s{i} = t{i}.union({others})"]
        return [*head, *body, *made]
    body = [
        "    stateful = True",
        output,
        "",
        "    def on_start(self, context):",
        "        self.kept = {}",
        "",
    ]
    body += _totals() if step.how == "totals" else _ticks()
    timed = f'{first}.with_columns(step="at{i}", at=timestamp())' if step.how == "ticks" else first
    made = f's{i} = {timed}.process(Task{i}, partitioner=partitioners.hash("key"), {options})'
    return [*head, *body, made]


def _totals() -> list[str]:
    return [
        "    def on_next(self, m):",
        "        name = repr(m.key)",
        "        self.kept[name] = m.key, self.kept.get(name, (0, 0))[1] + (m.n or 0)",
        "",
        "    def on_stop(self):",
        "        yield from self.kept.values()",
        "",
        "",
    ]


def _ticks() -> list[str]:
    """Sums for each key and second, when the clock has passed the second."""
    return [
        "    def on_next(self, m):",
        "        second = (m.at - at(0)) // timedelta(seconds=1)",
        "        name = repr(m.key), second",
        "        self.kept[name] = m.key, self.kept.get(name, (0, 0))[1] + (m.n or 0)",
        "",
        "    def on_clock(self, clock_ms):",
        "        for name in [name for name in self.kept if (name[1] + 1) * 1000 <= clock_ms]:",
        "            yield TimestampedValue((name[1] + 1) * 1000 - 1, self.kept.pop(name))",
        "",
        "",
    ]


def _persistent(i: int, first: str, step: Persistent, kind: str) -> list[str]:
    state = 'agg.sum("n")' if step.how == "windows" else "agg.count()"
    if step.how == "windows":
        state += f', window=windows.tumbling("{step.size_ms} ms")'
    body = ["", "", f"class Task{i}(PersistentTask):", '    key = "key"', f"    state = State({state})"]
    body.append(f'    output = "key {kind}, n bigint"')
    match step.how:
        case "each":
            body += [
                "",
                "    def on_next(self, m):",
                "        self.state.update(m)",
                "        yield m.key, m.n",
            ]
        case "timers":
            body += [
                "",
                "    def on_next(self, m):",
                "        self.state.set_timer(m.ms // 1000 * 1000 + 1000)",
                "",
                "    def on_timer(self, key, at_ms):",
                "        yield key, at_ms // 1000 % 7",
            ]
            first = f'{first}.with_columns(step="ms{i}", ms=F.unix_millis(timestamp()))'
        case "windows":
            body += ["", "    def on_window(self, key, start_ms, end_ms, value):", "        yield key, value"]
        case "changes":
            body += ["", "    def on_change(self, key, value):", "        yield key, value"]
        case _:
            pass
    return [*body, "", "", f's{i} = {first}.process(Task{i}, name="step{i}")']


def _function(head: str, body: str) -> list[str]:
    return ["", "", f"def {head}:", f"    {body}", "", ""]
