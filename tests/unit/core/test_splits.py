"""The split assigner against one that looks at every split each time."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.job.splits import Answer, Split, SplitAssigner

HOSTS = ["a", "b", "c"]
hosts = st.sampled_from([*HOSTS, None])
attempts = st.tuples(st.sampled_from(["x", "y", "z"]), st.integers(1, 3))
layouts = st.lists(st.lists(st.sampled_from(HOSTS), max_size=3, unique=True), max_size=12)
steps = st.lists(
    st.tuples(
        st.sampled_from(["begin", "next", "next", "next", "complete", "fail", "finish"]), attempts, hosts
    ),
    max_size=60,
)


class Naive:
    """Scans all splits: local ones first, fewest hosts that have asked, then the order given."""

    def __init__(self, splits: list[Split]) -> None:
        self.splits = splits
        self.pool = set(range(len(splits)))
        self.asked: set[str] = set()
        self.held: dict[tuple[str, int], list[int]] = {}

    def next(self, attempt: tuple[str, int], host: str | None) -> Split | Answer:
        if attempt not in self.held:
            return Answer.UNKNOWN_ATTEMPT
        if host is not None:
            self.asked.add(host)
        local = [n for n in self.pool if host is not None and host in self.splits[n].hosts]
        choice = local or list(self.pool)
        if not choice:
            return Answer.NO_MORE
        best = min(choice, key=lambda n: (len(self.asked & set(self.splits[n].hosts)), n))
        self.pool.remove(best)
        self.held[attempt].append(best)
        return self.splits[best]


@given(layouts, steps)
def test_it_gives_what_a_full_scan_gives(
    layout: list[list[str]], script: list[tuple[str, tuple[str, int], str | None]]
) -> None:
    splits = [Split(n, f"file {n}", tuple(where)) for n, where in enumerate(layout)]
    real, naive = SplitAssigner(splits), Naive(splits)
    for step, attempt, host in script:
        held = naive.held.get(attempt)
        match step:
            case "begin":
                real.begin(attempt)
                naive.held.setdefault(attempt, [])
            case "next":
                assert real.next(attempt, host) == naive.next(attempt, host)
            case "complete":
                number = held[0] if held else 0
                assert real.complete(attempt, number) == bool(held)
                if held:
                    held.remove(number)
            case "fail":
                returned = sorted(naive.held.pop(attempt, []))
                assert [s.number for s in real.fail(attempt)] == returned
                naive.pool.update(returned)
            case "finish":
                real.finish(attempt)
                naive.held.pop(attempt, None)
        assert real.waiting == len(naive.pool)
        real.check()


@given(layouts, st.randoms(use_true_random=False))
def test_every_split_is_read_once_however_often_attempts_fail(
    layout: list[list[str]], random: object
) -> None:
    splits = [Split(n, f"file {n}", tuple(where)) for n, where in enumerate(layout)]
    assigner = SplitAssigner(splits)
    read: Counter[int] = Counter()
    number = 0
    while not assigner.is_done:
        number += 1
        attempt = ("reader", number)
        assigner.begin(attempt)
        while isinstance(split := assigner.next(attempt, random.choice([*HOSTS, None])), Split):  # type: ignore[attr-defined]
            if random.random() < 0.3:  # type: ignore[attr-defined]
                break
            assert assigner.complete(attempt, split.number)
            read[split.number] += 1
        assigner.fail(attempt)
        assert assigner.next(attempt, "a") is Answer.UNKNOWN_ATTEMPT
    assert read == Counter(range(len(splits)))


def test_a_host_takes_first_what_nobody_else_who_asked_has() -> None:
    assigner = SplitAssigner(
        [Split(0, "shared", ("a", "b")), Split(1, "only a", ("a",)), Split(2, "far", ())]
    )
    assigner.begin(("x", 1))
    assigner.begin(("y", 1))
    assert assigner.next(("y", 1), "c") == Split(0, "shared", ("a", "b"))
    assigner.fail(("y", 1))
    assigner.begin(("y", 2))
    assigner._host_asks("b")
    assert assigner.next(("x", 1), "a") == Split(1, "only a", ("a",))
    assert assigner.next(("y", 2), "b") == Split(0, "shared", ("a", "b"))
    assert (assigner.local_given, assigner.remote_given) == (2, 1)
