"""What a timeout costs: the timing wheel beside a heap and beside asyncio's own timers.

Two questions, each contender in turn within a round. Figures are CPU time, which hardly depends on what
else the machine does, and medians over rounds:

*pending*: the cost of adding one timer and cancelling one while 10³ to 10⁶ others wait. The cancelled
one is the `newest` (answered at once), the `oldest` (answered in order), or a `random` one. With a random
one most of the cost is the memory's: `no timer` does the same to a list of objects without any timer.

*workload*: requests shaped like Apache Kafka's published purgatory benchmark, in virtual time: 100 per ms,
timeout 200 ms, log-normal latency with p75 60 ms (mostly cancelled) or 400 ms (mostly expiring; the
medians, 20 and 250 ms, are ours). The first also with a timeout of 30 s, over which a heap that cannot
delete keeps every finished request. `held` is the most entries kept at once. `purgatory` is the wheel with
watch keys and locks, as actor systems use it.

The heap deletes lazily: a cancelled entry stays until it reaches the top. asyncio does the same, and
rebuilds its heap when more than half is cancelled; its loop runs on virtual time here.

The collector is on. What was filled before a measurement is taken out of its sight with `gc.freeze`, as a
server may do after its start; `--no-freeze` shows what that saves.

    python -m benchmarks.wheel [--quick] [--json] [--rounds N] [--no-freeze]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

from drivetrain.actor.purgatory import ThreadSafePurgatory
from drivetrain.core.waiting.timer import Timer
from drivetrain.core.waiting.waiting_operations import DelayedOperation
from drivetrain.core.waiting.wheel import TimerTask

FLAT = 1.5
HOUR_MS = 3_600_000
OPS_PER_MS = 1_000
REQUESTS_PER_MS = 100
ORDERS = ("newest", "oldest", "random")
# name: (timeout in ms, median and third quartile of the latency in ms)
WORKLOADS = {
    "p75 60 ms, timeout 200 ms": (200, 20, 60),
    "p75 400 ms, timeout 200 ms": (200, 250, 400),
    "p75 60 ms, timeout 30 s": (30_000, 20, 60),
}


class Contender(Protocol):
    """Something that keeps timers; `expired` counts those that struck."""

    expired: int

    def add(self, delay_ms: int, now_ms: int) -> Any: ...

    def cancel(self, handle: Any) -> object: ...

    def advance(self, now_ms: int) -> None: ...

    def held(self) -> int: ...


class Wheel:
    def __init__(self) -> None:
        self.timer: Timer[TimerTask] = Timer()
        self.expired = 0
        self.cancel = TimerTask.cancel

    def add(self, delay_ms: int, now_ms: int) -> TimerTask:
        task = TimerTask()
        self.timer.add(task, delay_ms, now_ms)
        return task

    def advance(self, now_ms: int) -> None:
        self.expired += len(self.timer.advance(now_ms))

    def held(self) -> int:
        return self.timer.size


class LazyHeap:
    def __init__(self) -> None:
        self.heap: list[list[int]] = []
        self.count = 0
        self.expired = 0

    def add(self, delay_ms: int, now_ms: int) -> list[int]:
        self.count += 1
        entry = [now_ms + delay_ms, self.count, True]
        heappush(self.heap, entry)
        return entry

    def cancel(self, entry: list[int]) -> None:
        entry[2] = False

    def advance(self, now_ms: int) -> None:
        heap = self.heap
        while heap and heap[0][0] <= now_ms:
            self.expired += heappop(heap)[2]

    def held(self) -> int:
        return len(self.heap)


class AsyncioTimers:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.now_s = 0.0
        self.loop.time = lambda: self.now_s  # type: ignore[method-assign]
        self.expired = 0
        self.cancel = asyncio.TimerHandle.cancel

    def strike(self) -> None:
        self.expired += 1

    def add(self, delay_ms: int, now_ms: int) -> asyncio.TimerHandle:
        return self.loop.call_later(delay_ms / 1_000, self.strike)

    def advance(self, now_ms: int) -> None:
        self.now_s = now_ms / 1_000
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def held(self) -> int:
        return len(self.loop._scheduled)  # type: ignore[attr-defined]


class NoTimer:
    """What the harness and the memory cost."""

    def __init__(self) -> None:
        self.expired = 0

    def add(self, delay_ms: int, now_ms: int) -> TimerTask:
        return TimerTask()

    def cancel(self, task: TimerTask) -> None:
        task.expiration_ms = 0

    def advance(self, now_ms: int) -> None:
        pass

    def held(self) -> int:
        return 0


class Request(DelayedOperation):
    __slots__ = ("answered", "expirations", "key")

    def __init__(self, delay_ms: int, key: int, expirations: list[int]) -> None:
        super().__init__(delay_ms)
        self.key = key
        self.answered = False
        self.expirations = expirations

    def try_complete(self) -> bool:
        return self.answered and self.force_complete()

    def on_complete(self) -> None:
        pass

    def on_expiration(self) -> None:
        self.expirations.append(self.key)


class InPurgatory:
    def __init__(self) -> None:
        self.now_ms = 0
        self.purgatory: ThreadSafePurgatory[Request] = ThreadSafePurgatory(now_ms=lambda: self.now_ms)
        self.count = 0
        self.expirations: list[int] = []
        self.expired = 0

    def add(self, delay_ms: int, now_ms: int) -> Request:
        self.count += 1
        request = Request(delay_ms, self.count, self.expirations)
        self.purgatory.try_complete_else_watch(request, (self.count,))
        return request

    def cancel(self, request: Request) -> None:
        request.answered = True
        self.purgatory.check_and_complete(request.key)

    def advance(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.purgatory.advance()
        self.expired = len(self.expirations)

    def held(self) -> int:
        return max(self.purgatory.delayed, self.purgatory.watched)


PEERS: dict[str, Callable[[], Contender]] = {"wheel": Wheel, "heapq": LazyHeap, "asyncio": AsyncioTimers}
BASELINE: dict[str, Callable[[], Contender]] = {"no timer": NoTimer}
PURGATORY: dict[str, Callable[[], Contender]] = {"purgatory": InPurgatory}


def without_old_garbage(freeze: bool) -> None:
    gc.unfreeze()
    gc.collect()
    if freeze:
        gc.freeze()


class Pending:
    """One contender with `size` timers waiting for an hour."""

    def __init__(self, contender: Contender, size: int) -> None:
        self.contender = contender
        self.size = size
        self.now_ms = 0
        self.oldest = 0
        self.handles = [contender.add(HOUR_MS + number % 60_000, 0) for number in range(size)]

    def ns_per_op(self, order: str, ops: int, rng: random.Random) -> float:
        """Add one and cancel one, `ops` times, going on by 1 ms every 1000; the mean in ns."""
        victims = self.victims(order, ops, rng)
        add, cancel, handles = self.contender.add, self.contender.cancel, self.handles
        start = time.process_time_ns()
        for first in range(0, ops, OPS_PER_MS):
            now_ms = self.now_ms
            if order == "newest":
                for _ in range(OPS_PER_MS):
                    cancel(add(100, now_ms))
            else:
                for victim in victims[first : first + OPS_PER_MS]:
                    cancel(handles[victim])
                    handles[victim] = add(HOUR_MS, now_ms)
            self.now_ms += 1
            self.contender.advance(self.now_ms)
        return (time.process_time_ns() - start) / ops

    def victims(self, order: str, ops: int, rng: random.Random) -> list[int]:
        if order == "random":
            return [rng.randrange(self.size) for _ in range(ops)]
        first = self.oldest
        self.oldest = (first + ops) % self.size
        return [(first + number) % self.size for number in range(ops)]


def measure_pending(sizes: list[int], ops: int, rounds: int, freeze: bool) -> dict[str, Any]:
    """Median ns per operation, keyed by contender, order and number of pending timers."""
    contenders = PEERS | BASELINE
    result: dict[str, Any] = {name: {order: {} for order in ORDERS} for name in contenders}
    for size in sizes:
        samples: dict[tuple[str, str], list[float]] = {(n, o): [] for n in contenders for o in ORDERS}
        for name, make in contenders.items():
            pending = Pending(make(), size)
            rng = random.Random(size)
            for _ in range(rounds):
                for order in ORDERS:
                    without_old_garbage(freeze)
                    samples[name, order].append(pending.ns_per_op(order, ops, rng))
            del pending
        for (name, order), ns in samples.items():
            result[name][order][size] = statistics.median(ns)
    return result


class Workload:
    """Requests that arrive at a constant rate, and when each is answered, ms by ms."""

    def __init__(self, requests: int, timeout_ms: int, p50_ms: float, p75_ms: float) -> None:
        rng = random.Random(7)
        spread = math.log(p75_ms / p50_ms) / statistics.NormalDist().inv_cdf(0.75)
        self.timeout_ms = timeout_ms
        self.arrivals_ms = requests // REQUESTS_PER_MS
        self.answers: list[list[int]] = [[] for _ in range(self.arrivals_ms + timeout_ms)]
        self.expiring = 0
        for number in range(requests):
            latency_ms = math.ceil(rng.lognormvariate(math.log(p50_ms), spread))
            if latency_ms < timeout_ms:
                self.answers[number // REQUESTS_PER_MS + latency_ms].append(number)
            else:
                self.expiring += 1

    def ns_per_request(self, contender: Contender) -> tuple[float, int]:
        """Run it in virtual time; return the mean in ns, and the most entries held at once."""
        add, cancel, timeout_ms = contender.add, contender.cancel, self.timeout_ms
        handles: dict[int, Any] = {}
        most = number = 0
        start = time.process_time_ns()
        for now_ms, answers in enumerate(self.answers):
            contender.advance(now_ms)
            for answered in answers:
                cancel(handles.pop(answered))
            if now_ms < self.arrivals_ms:
                for number in range(number, number + REQUESTS_PER_MS):  # noqa: B020 - it goes on where it was
                    handles[number] = add(timeout_ms, now_ms)
                number += 1
            most = max(most, contender.held())
        contender.advance(len(self.answers) + 1)
        ns = (time.process_time_ns() - start) / (self.arrivals_ms * REQUESTS_PER_MS)
        if contender.expired not in (self.expiring, 0):
            sys.exit(f"{contender}: {contender.expired} expired instead of {self.expiring}")
        return ns, most


def measure_workloads(requests: int, rounds: int, freeze: bool) -> dict[str, Any]:
    """Median ns per request and the most entries held, keyed by workload and contender."""
    result: dict[str, Any] = {}
    for title, (timeout_ms, p50_ms, p75_ms) in WORKLOADS.items():
        workload = Workload(requests, timeout_ms, p50_ms, p75_ms)
        contenders = PEERS | PURGATORY | BASELINE
        ns: dict[str, list[float]] = {name: [] for name in contenders}
        held: dict[str, int] = {}
        for _ in range(rounds):
            for name, make in contenders.items():
                without_old_garbage(freeze)
                sample, held[name] = workload.ns_per_request(make())
                ns[name].append(sample)
        result[title] = {
            "expiring": workload.expiring / requests,
            "ns": {name: statistics.median(samples) for name, samples in ns.items()},
            "held": held,
        }
    return result


def summarize(pending: dict[str, Any], workloads: dict[str, Any]) -> dict[str, Any]:
    """The ratios: largest over smallest cost per contender and order, and peers over the wheel."""

    def spread(by_size: dict[int, float]) -> float:
        return max(by_size.values()) / min(by_size.values())

    return {
        "flatness": {
            name: {order: spread(ns) for order, ns in orders.items()} for name, orders in pending.items()
        },
        "peer_over_wheel": {
            title: {peer: w["ns"][peer] / w["ns"]["wheel"] for peer in ("heapq", "asyncio")}
            for title, w in workloads.items()
        },
    }


def print_tables(result: dict[str, Any]) -> None:
    pending, ratios = result["pending"], result["ratios"]
    sizes = list(pending["wheel"]["newest"])
    print("add one + cancel one, ns, by the number of pending timers")
    print(f"{'cancelled':10}{'':10}" + "".join(f"{size:>12,}" for size in sizes) + f"{'max/min':>10}")
    for order in ORDERS:
        for name, orders in pending.items():
            row = "".join(f"{orders[order][size]:>12.0f}" for size in sizes)
            print(f"{order:10}{name:10}{row}{ratios['flatness'][name][order]:>10.2f}")
    for title, workload in result["workloads"].items():
        print(f"\n{title}: {workload['expiring']:.0%} expire")
        for name, ns in workload["ns"].items():
            peer = ratios["peer_over_wheel"][title].get(name)
            ratio = f"  {peer:.2f} times the wheel" if peer else ""
            held = workload["held"][name]
            print(f"  {name:10}{ns:>8.0f} ns{1e9 / ns:>12,.0f} requests/s{held:>12,} held{ratio}")
    for order in ("newest", "oldest"):
        flat = ratios["flatness"]["wheel"][order]
        print(f"\nwheel, {order}: largest/smallest {flat:.2f} (wanted: at most {FLAT})", end="")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs, to see that it works")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--no-freeze", action="store_true", help="let the collector see what was filled before"
    )
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.rounds
    sizes = [10**3, 10**4, 10**5] if arguments.quick else [10**3, 10**4, 10**5, 10**6]
    freeze = not arguments.no_freeze
    pending = measure_pending(sizes, 20_000 if arguments.quick else 200_000, rounds, freeze)
    workloads = measure_workloads(50_000 if arguments.quick else 1_000_000, min(rounds, 3), freeze)
    result = {
        "benchmark": "wheel",
        "python": sys.version.split()[0],
        "rounds": rounds,
        "gc_freeze": freeze,
        "pending": pending,
        "workloads": workloads,
        "ratios": summarize(pending, workloads),
    }
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        print_tables(result)


if __name__ == "__main__":
    main()
