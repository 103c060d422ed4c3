"""What actors cost within one process: beside pykka, Thespian and xoscar, as far as these are installed.

Cases:

- `tell`: one actor counts messages that are sent to it from outside, in floods of 5,000 that it must have
  handled before the next. `ours, coroutine` has an `async def receive` that does not wait for anything.
- `ask`: one question after the other, each answered before the next; the reply is checked.
- `ping`: two actors send one message back and forth.
- `spawn`: starting actors, until each has run its first hook.
- `idle`: resident memory per idle actor, and of 100,000 of them (contenders that need a thread for each
  actor are measured with fewer).

Every measurement runs in a process of its own, contenders in turn within a round; the figures are medians
over rounds. A busy machine may well halve them: `loop` is what one turn of a plain Python loop took in the
same process just before. When that differs between the contenders of a case by more than a sixth, the
machine was not steady, and the case says that its ratios are not to be quoted.

What is asked of us: at least 300,000 tells per second, and 100,000 idle actors below 200 MiB.

The peers are not dependencies of Drivetrain. To see them beside it:

    python -m venv peers && peers/bin/pip install -e . pykka thespian xoscar
    peers/bin/python -m benchmarks.actors [--quick] [--json] [--rounds N] [--case CASE ...]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

FLOOD = 5_000
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STEADY = 7 / 6  # the most that the calibrations within a case may differ by
GOALS = {"tell": ("ours", ">=", 300_000.0), "idle": ("ours", "<=", 200.0)}

Measure = Callable[[int], dict[str, float]]


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def calibrate_ns() -> float:
    """Return what one turn of a plain Python loop takes on this machine now."""
    turns, total = 1_000_000, 0
    began = time.perf_counter()
    for turn in range(turns):
        total += turn
    return (time.perf_counter() - began) / turns * 1e9


def rate(count: int, seconds: float) -> dict[str, float]:
    """Return the figures of `count` operations: per second, and µs each."""
    return {"per_s": count / seconds, "us": seconds / count * 1e6}


def memory(count: int, before: int) -> dict[str, float]:
    """Return the figures of `count` idle actors made since `before`."""
    each = (resident_bytes() - before) / count
    return {"bytes_each": each, "mib_of_100k": each * 100_000 / 2**20}


# ---- ours


def ours(body: Callable[..., Coroutine[Any, Any, dict[str, float]]], *arguments: Any) -> Measure:
    """Make a measurement of `body(system, count, *arguments)`."""

    def measure(count: int) -> dict[str, float]:
        from drivetrain.actor import ActorSystem

        async def run() -> dict[str, float]:
            system = ActorSystem("benchmark")
            figures = await body(system, count, *arguments)
            await system.terminate()
            return figures

        return asyncio.run(run())

    return measure


def our_classes() -> Any:
    """Return our messages and actors; a function, so that peers' measurements do not import them."""
    from types import SimpleNamespace

    from drivetrain.actor import Actor, ActorRef, Message

    class Add(Message):
        amount: int

    class Get(Message):
        pass

    class Total(Message):
        total: int

    class Counter(Actor):
        def __init__(self) -> None:
            self.total = 0

        def receive(self, message: Message) -> None:
            if type(message) is Add:
                self.total += message.amount
            else:
                self.context.reply(Total(self.total))

    class AsyncCounter(Counter):
        async def receive(self, message: Message) -> None:  # type: ignore[override]
            Counter.receive(self, message)

    class Pinger(Actor):
        def __init__(self, left: int, done: asyncio.Future[None]) -> None:
            self.left, self.done = left, done
            self.other: ActorRef | None = None

        def receive(self, message: Message) -> None:
            self.left -= 1
            if self.left > 0:
                sender = self.context.sender
                assert sender is not None
                sender.tell(message, self.context.me)
            elif not self.done.done():
                self.done.set_result(None)

    return SimpleNamespace(**{key: value for key, value in locals().items() if isinstance(value, type)})


async def our_tell(system: Any, count: int, kind: str) -> dict[str, float]:
    ns = our_classes()
    counter, message, get = system.spawn(getattr(ns, kind)), ns.Add(1), ns.Get()
    await counter.ask(get)
    began = time.perf_counter()
    for _ in range(count // FLOOD):
        for _ in range(FLOOD):
            counter.tell(message)
        reply = await counter.ask(get, ns.Total)
    seconds = time.perf_counter() - began
    assert reply.total == count // FLOOD * FLOOD
    return rate(reply.total, seconds)


async def our_ask(system: Any, count: int) -> dict[str, float]:
    ns = our_classes()
    counter, get = system.spawn(ns.Counter), ns.Get()
    await counter.ask(get)
    began = time.perf_counter()
    for _ in range(count):
        reply = await counter.ask(get, ns.Total)
    assert reply.total == 0
    return rate(count, time.perf_counter() - began)


async def our_ping(system: Any, count: int) -> dict[str, float]:
    ns = our_classes()
    done = system.loop.create_future()
    one, two = (system.spawn(lambda: ns.Pinger(count // 2, done)) for _ in range(2))
    await asyncio.sleep(0.01)
    began = time.perf_counter()
    one.tell(ns.Get(), two)
    await done
    return rate(count, time.perf_counter() - began)


async def our_start(system: Any, count: int, wants_memory: bool) -> dict[str, float]:
    ns = our_classes()
    gc.collect()
    before = resident_bytes()
    began = time.perf_counter()
    for _ in range(count):
        last = system.spawn(ns.Counter)
    await last.ask(ns.Get())  # they start in order
    seconds = time.perf_counter() - began
    gc.collect()
    return memory(count, before) if wants_memory else rate(count, seconds)


# ---- pykka: a thread per actor


def pykka_counter() -> Any:
    import pykka

    class Counter(pykka.ThreadingActor):
        def __init__(self) -> None:
            super().__init__()
            self.total = 0

        def on_receive(self, message: Any) -> Any:
            if message is None:
                return self.total
            self.total += message
            return None

    return Counter


def pykka_tell(count: int) -> dict[str, float]:
    counter = pykka_counter().start()
    counter.ask(None)
    began = time.perf_counter()
    for _ in range(count // FLOOD):
        for _ in range(FLOOD):
            counter.tell(1)
        total = counter.ask(None)
    seconds = time.perf_counter() - began
    counter.stop()
    assert total == count // FLOOD * FLOOD
    return rate(total, seconds)


def pykka_ask(count: int) -> dict[str, float]:
    counter = pykka_counter().start()
    began = time.perf_counter()
    for _ in range(count):
        assert counter.ask(None) == 0
    seconds = time.perf_counter() - began
    counter.stop()
    return rate(count, seconds)


def pykka_ping(count: int) -> dict[str, float]:
    import threading

    import pykka

    done = threading.Event()

    class Pinger(pykka.ThreadingActor):
        def __init__(self) -> None:
            super().__init__()
            self.left = count // 2

        def on_receive(self, message: Any) -> Any:
            self.left -= 1
            if self.left > 0:
                message.tell(self.actor_ref)
            else:
                done.set()

    one, two = Pinger.start(), Pinger.start()
    began = time.perf_counter()
    one.tell(two)
    done.wait()
    seconds = time.perf_counter() - began
    one.stop()
    two.stop()
    return rate(count, seconds)


def pykka_start(wants_memory: bool) -> Measure:
    def measure(count: int) -> dict[str, float]:
        import pykka

        count = max(100, count // 100)  # each is a thread
        kind = pykka_counter()
        gc.collect()
        before = resident_bytes()
        began = time.perf_counter()
        actors = [kind.start() for _ in range(count)]
        actors[-1].ask(None)
        seconds = time.perf_counter() - began
        figures = memory(count, before) if wants_memory else rate(count, seconds)
        pykka.ActorRegistry.stop_all()
        return figures

    return measure


# ---- Thespian, with all actors in one process


def thespian_system() -> Any:
    from thespian.actors import Actor, ActorSystem

    class ThespianCounter(Actor):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.total = 0

        def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802 - Thespian's name
            if message == "get":
                self.send(sender, self.total)
            elif isinstance(message, int):
                self.total += message

    return ActorSystem("simpleSystemBase"), ThespianCounter


def thespian_tell(count: int) -> dict[str, float]:
    system, kind = thespian_system()
    counter = system.createActor(kind)
    began = time.perf_counter()
    for _ in range(count // FLOOD):
        for _ in range(FLOOD):
            system.tell(counter, 1)
        total = system.ask(counter, "get", 10)
    seconds = time.perf_counter() - began
    assert total == count // FLOOD * FLOOD
    return rate(total, seconds)


def thespian_ask(count: int) -> dict[str, float]:
    system, kind = thespian_system()
    counter = system.createActor(kind)
    began = time.perf_counter()
    for _ in range(count):
        assert system.ask(counter, "get", 10) == 0
    return rate(count, time.perf_counter() - began)


def thespian_start(wants_memory: bool) -> Measure:
    def measure(count: int) -> dict[str, float]:
        count = max(100, count // 10)
        system, kind = thespian_system()
        gc.collect()
        before = resident_bytes()
        began = time.perf_counter()
        actors = [system.createActor(kind) for _ in range(count)]
        system.ask(actors[-1], "get", 10)
        seconds = time.perf_counter() - began
        return memory(count, before) if wants_memory else rate(count, seconds)

    return measure


# ---- xoscar, with a pool of no other processes


def xoscar(body: Callable[..., Coroutine[Any, Any, dict[str, float]]], *arguments: Any) -> Measure:
    def measure(count: int) -> dict[str, float]:
        import xoscar as xo

        async def run() -> dict[str, float]:
            pool = await xo.create_actor_pool("127.0.0.1", n_process=0)
            async with pool:
                return await body(xo, pool.external_address, count, *arguments)

        return asyncio.run(run())

    return measure


def xoscar_counter(xo: Any) -> Any:
    class Counter(xo.Actor):  # type: ignore[misc]
        def __init__(self) -> None:
            self.total = 0

        def add(self, amount: int) -> None:
            self.total += amount

        def get(self) -> int:
            return self.total

    return Counter


async def xoscar_tell(xo: Any, address: str, count: int) -> dict[str, float]:
    counter = await xo.create_actor(xoscar_counter(xo), address=address, uid="counter")
    began = time.perf_counter()
    for _ in range(count // FLOOD):
        for _ in range(FLOOD):
            await counter.add.tell(1)
        while (total := await counter.get()) % FLOOD:
            await asyncio.sleep(0)
    seconds = time.perf_counter() - began
    return rate(total, seconds)


async def xoscar_ask(xo: Any, address: str, count: int) -> dict[str, float]:
    counter = await xo.create_actor(xoscar_counter(xo), address=address, uid="counter")
    began = time.perf_counter()
    for _ in range(count):
        assert await counter.get() == 0
    return rate(count, time.perf_counter() - began)


async def xoscar_start(xo: Any, address: str, count: int, wants_memory: bool) -> dict[str, float]:
    count = max(100, count // 10)
    kind = xoscar_counter(xo)
    gc.collect()
    before = resident_bytes()
    began = time.perf_counter()
    actors = [await xo.create_actor(kind, address=address, uid=str(number)) for number in range(count)]
    await actors[-1].get()
    seconds = time.perf_counter() - began
    return memory(count, before) if wants_memory else rate(count, seconds)


# ---- the table

CASES: dict[str, tuple[int, dict[str, Measure]]] = {
    "tell": (
        500_000,
        {
            "ours": ours(our_tell, "Counter"),
            "ours, coroutine": ours(our_tell, "AsyncCounter"),
            "pykka": pykka_tell,
            "thespian": thespian_tell,
            "xoscar": xoscar(xoscar_tell),
        },
    ),
    "ask": (
        20_000,
        {
            "ours": ours(our_ask),
            "pykka": pykka_ask,
            "thespian": thespian_ask,
            "xoscar": xoscar(xoscar_ask),
        },
    ),
    "ping": (100_000, {"ours": ours(our_ping), "pykka": pykka_ping}),
    "spawn": (
        100_000,
        {
            "ours": ours(our_start, False),
            "pykka": pykka_start(False),
            "thespian": thespian_start(False),
            "xoscar": xoscar(xoscar_start, False),
        },
    ),
    "idle": (
        100_000,
        {
            "ours": ours(our_start, True),
            "pykka": pykka_start(True),
            "thespian": thespian_start(True),
            "xoscar": xoscar(xoscar_start, True),
        },
    ),
}


def main() -> int:
    """Run what the arguments say and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the operations, one round")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only these cases")
    parser.add_argument("--single", nargs=3, metavar=("CASE", "CONTENDER", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.single:
        case, contender, count = options.single
        loop_ns = calibrate_ns()
        print(json.dumps(CASES[case][1][contender](int(count)) | {"loop_ns": loop_ns}))
        return 0
    missing = [peer for peer in ("pykka", "thespian", "xoscar") if importlib.util.find_spec(peer) is None]
    results = [
        run_case(case, 1 if options.quick else options.rounds, options.quick, missing)
        for case in options.case or CASES
    ]
    if options.json:
        print(json.dumps({"python": sys.version.split()[0], "missing": missing, "cases": results}, indent=2))
    else:
        for result in results:
            show(result)
        for peer in missing:
            print(f"{peer} is not installed here: left out")
    return 0


def run_case(case: str, rounds: int, quick: bool, missing: list[str]) -> dict[str, Any]:
    """Measure every contender of a case that is there, in turn within each round."""
    count, contenders = CASES[case]
    count = count // 10 if quick and case not in ("spawn", "idle") else count
    there = [name for name in contenders if name not in missing]
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in there}
    for _ in range(rounds):
        for name in there:
            figures[name].append(measure_apart(case, name, count))
    medians = {
        name: {key: statistics.median(each[key] for each in all_rounds) for key in all_rounds[0]}
        for name, all_rounds in figures.items()
    }
    key = "bytes_each" if case == "idle" else "per_s"
    ratios = {name: medians["ours"][key] / figure[key] for name, figure in medians.items() if name != "ours"}
    loops = [each["loop_ns"] for all_rounds in figures.values() for each in all_rounds]
    return {
        "case": case,
        "operations": count,
        "median": medians,
        "ours_over": ratios,
        "steady": max(loops) <= min(loops) * STEADY,
        "loop_ns": [min(loops), max(loops)],
    }


def measure_apart(case: str, contender: str, count: int) -> dict[str, float]:
    """Run one measurement in its own process."""
    command = [sys.executable, "-m", "benchmarks.actors", "--single", case, contender, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{case} of {contender} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def show(result: dict[str, Any]) -> None:
    """Print one case as lines."""
    case = result["case"]
    print(f"{case} ({result['operations']:,})")
    for name, figure in result["median"].items():
        if case == "idle":
            text = (
                f"{figure['bytes_each']:>10,.0f} bytes each, {figure['mib_of_100k']:>8,.1f} MiB for 100,000"
            )
        else:
            text = f"{figure['per_s']:>12,.0f}/s  {figure['us']:>9,.2f} µs"
        ratio = result["ours_over"].get(name)
        loop = f"   loop {figure['loop_ns']:3.0f} ns"
        print(f"  {name:16} {text}{loop}" + ("" if ratio is None else f"   ours over it: {ratio:.2f}"))
    if not result["steady"]:
        slowest, fastest = result["loop_ns"][1], result["loop_ns"][0]
        print(f"  NOT STEADY: a plain loop took {fastest:.0f} to {slowest:.0f} ns; do not quote these ratios")
    goal = GOALS.get(case)
    if goal is not None:
        name, sign, value = goal
        got = result["median"][name]["mib_of_100k" if case == "idle" else "per_s"]
        met = got >= value if sign == ">=" else got <= value
        print(
            f"  goal: {sign} {value:,.0f} {'MiB' if case == 'idle' else '/s'}: {'met' if met else 'NOT met'}"
        )


if __name__ == "__main__":
    raise SystemExit(main())
