"""Tasks with typed states, and joins as of the time of a message, as program text."""

from __future__ import annotations

from .recipe import AsOfJoin, Keyed


def as_of_lines(i: int, left: str, right: str, step: AsOfJoin) -> list[str]:
    """Write stream `i`: the value of a version is its time, so that versions of one instant are equal."""
    versions = f'{right}.select("key", m=F.unix_millis(timestamp()))'
    joined = f'{left}.join_as_of({versions}, on="key", how="{step.how}", name="step{i}")'
    return [f's{i} = {joined}.select("key", n="n + coalesce(m, 0)")']


def keyed_lines(i: int, first: str, step: Keyed, kind: str) -> list[str]:
    """Write stream `i`: a Task in the order of event time."""
    body = ["", "", f"class Task{i}(KeyedTask):", '    key = "key"', "    in_order = True"]
    body.append(f'    output = "key {kind}, n bigint"')
    kept = "(str if LIFE % 2 == 0 else int)" if step.migrates else "int"
    if step.migrates:
        body += ["    version = LIFE", "", "    @classmethod", "    def migrate(cls, version, states):"]
        if step.how == "earlier":
            body.append(f'        return {{"earlier": [{kept}(one) for one in states.get("earlier", ())]}}')
        else:
            body.append('        last_ms = states.get("last_ms")')
            last = f"None if last_ms is None else {kept}(last_ms)"
            body.append(f'        return {{"last_ms": {last}, "counts": states.get("counts", {{}})}}')
        body.append("")
    if step.how == "earlier":
        body += [
            f'    earlier = ListState({kept}, ttl="{step.span_ms} ms")',
            "",
            "    def on_next(self, m):",
            "        yield m.key, len(self.earlier.get())",
            f"        self.earlier.append({kept}(1))",
        ]
    else:
        first = f'{first}.with_columns(step="ms{i}", ms=F.unix_millis(timestamp()))'
        body += [
            f"    last_ms = ValueState({kept})",
            "    counts = MapState(str, int)",
            "",
            "    def on_next(self, m):",
            '        self.counts["row"] = self.counts.get("row", 0) + 1',
            f"        self.last_ms.set({kept}(m.ms))",
            f"        self.set_timer(m.ms + {step.span_ms})",
            "",
            "    def on_timer(self, key, at_ms):",
            f"        if self.last_ms.get() == {kept}(at_ms - {step.span_ms}):",
            '            yield key, self.counts["row"]',
            "            self.counts.clear()",
            "            self.last_ms.clear()",
        ]
    return [*body, "", "", f's{i} = {first}.process(Task{i}, name="step{i}")']
