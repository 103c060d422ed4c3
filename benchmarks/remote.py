"""What a message between two processes of one machine costs, beside Thespian and xoscar if installed.

Cases:

- `tell`: messages from this process to one actor in another, in floods of 5,000 that it must have counted
  before the next.
- `ask`: one question after the other to an actor in another process; median, 99th percentile, and rate.
- `large`: asks that carry 1 MiB each.

`ours, sealed` authenticates every frame by a shared secret, as it is required between machines; `ours,
uvloop` runs on uvloop instead of asyncio's own loop. pykka's actors cannot leave their process. Every
measurement runs in two fresh processes, contenders in turn within a round; the figures are medians over
rounds. What is asked of us: at least 60,000 tells per second, asks with a median below 0.5 ms and a 99th
percentile below 2 ms on an idle machine.

    python -m venv peers && peers/bin/pip install -e . thespian xoscar uvloop
    peers/bin/python -m benchmarks.remote [--quick] [--json] [--rounds N] [--case CASE ...]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.actors import calibrate_ns

FLOOD = 5_000
LARGE_BYTES = 1 << 20
SECRET = "a secret for benchmarks only"

Figures = dict[str, float]
Measure = Callable[[str, int], Figures]


def rate(count: int, seconds: float) -> Figures:
    """Return the figures of `count` operations."""
    return {"per_s": count / seconds, "us": seconds / count * 1e6}


def latencies(seconds: list[float]) -> Figures:
    """Return the figures of single operations, in µs."""
    cuts = statistics.quantiles(seconds, n=100)
    return {**rate(len(seconds), sum(seconds)), "p50_us": cuts[49] * 1e6, "p99_us": cuts[98] * 1e6}


# ---- ours


def our_classes() -> Any:
    """Return our messages and the actor."""
    from types import SimpleNamespace

    from drivetrain.actor import Actor, Message

    class Add(Message, frozen=True, tag="bench.add"):
        amount: int
        load: bytes = b""

    class Get(Message, frozen=True, tag="bench.get"):
        load: bytes = b""

    class Total(Message, frozen=True, tag="bench.total"):
        total: int

    class Counter(Actor):
        def pre_start(self) -> None:
            self.total = 0

        def receive(self, message: Message) -> None:
            if type(message) is Add:
                self.total += message.amount
            else:
                self.context.reply(Total(self.total))

    return SimpleNamespace(Add=Add, Get=Get, Total=Total, Counter=Counter)


async def our_system(name: str, variant: str) -> Any:
    from drivetrain.actor import ActorSystem
    from drivetrain.actor.remote import RemoteSettings, attach_remote

    system = ActorSystem(name)
    await attach_remote(system, RemoteSettings(secret=SECRET if variant == "sealed" else None))
    return system


async def our_server(variant: str) -> None:
    """The other process: one counter, until the standard input closes."""
    system = await our_system("server", variant)
    system.spawn(our_classes().Counter, "counter", mailbox_capacity=10 * FLOOD)
    print(f"{system.address.host}:{system.address.port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await system.terminate()


async def our_tell(counter: Any, ns: Any, count: int) -> Figures:
    message, get = ns.Add(1), ns.Get()
    began = time.perf_counter()
    for _ in range(count // FLOOD):
        for _ in range(FLOOD):
            counter.tell(message)
        reply = await counter.ask(get, ns.Total)
    seconds = time.perf_counter() - began
    assert reply.total == count // FLOOD * FLOOD
    return rate(reply.total, seconds)


async def our_ask(counter: Any, ns: Any, count: int) -> Figures:
    return await time_each(count, lambda: counter.ask(ns.Get(), ns.Total))


async def our_large(counter: Any, ns: Any, count: int) -> Figures:
    get = ns.Get(bytes(LARGE_BYTES))
    return await time_each(max(20, count // 100), lambda: counter.ask(get, ns.Total))


async def time_each(count: int, operation: Callable[[], Awaitable[Any]]) -> Figures:
    for _ in range(min(count, 200)):
        await operation()
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        await operation()
        seconds.append(time.perf_counter() - began)
    return latencies(seconds)


def run_loop(variant: str, main: Awaitable[Any]) -> Any:
    if variant == "uvloop":
        import uvloop

        return uvloop.run(main)
    return asyncio.run(main)  # type: ignore[arg-type]


def ours(variant: str) -> Measure:
    bodies = {"tell": our_tell, "ask": our_ask, "large": our_large}

    def measure(case: str, count: int) -> Figures:
        command = [sys.executable, "-m", "benchmarks.remote", "--serve", variant]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            place = server.stdout.readline().strip()

            async def run() -> Figures:
                system = await our_system("client", variant)
                counter = await system.lookup(f"drivetrain://server@{place}/user/counter")
                figures = await bodies[case](counter, our_classes(), count)
                await system.terminate()
                return figures

            figures: Figures = run_loop(variant, run())
            assert server.stdin is not None
            server.stdin.close()
        return figures

    return measure


# ---- Thespian: every actor is a process, over TCP


def thespian(case: str, count: int) -> Figures:
    from thespian.actors import ActorSystem

    from benchmarks.remote_thespian import Counter

    system = ActorSystem("multiprocTCPBase", logDefs={"version": 1, "root": {"level": "CRITICAL"}})
    try:
        counter = system.createActor(Counter)
        system.ask(counter, ("get", b""), 10)
        if case == "tell":
            flood = 500  # more at once than it sends in time
            count = max(flood, count // 20)
            began = time.perf_counter()
            for _ in range(count // flood):
                for _ in range(flood):
                    system.tell(counter, 1)
                total = system.ask(counter, ("get", b""), 60)
            seconds = time.perf_counter() - began
            assert total == count // flood * flood, total
            return rate(total, seconds)
        load = bytes(LARGE_BYTES if case == "large" else 0)
        each = []
        for _ in range(max(20, count // 10) if case == "ask" else 20):
            began = time.perf_counter()
            assert system.ask(counter, ("get", load), 10) == 0
            each.append(time.perf_counter() - began)
        return latencies(each)
    finally:
        system.shutdown()


# ---- xoscar: a pool with one more process


def xoscar(case: str, count: int) -> Figures:
    import xoscar as xo

    from benchmarks.remote_xoscar import Counter

    async def run() -> Figures:
        pool = await xo.create_actor_pool("127.0.0.1", n_process=1)
        async with pool:
            strategy = xo.allocate_strategy.ProcessIndex(1)
            counter = await xo.create_actor(
                Counter, address=pool.external_address, uid="counter", allocate_strategy=strategy
            )
            if case != "tell":
                load = bytes(LARGE_BYTES if case == "large" else 0)
                return await time_each(count if case == "ask" else 20, lambda: counter.get(load))
            began = time.perf_counter()
            for _ in range(count // FLOOD):
                await asyncio.gather(*(counter.add.tell(1) for _ in range(FLOOD)))
                while (total := await counter.get(b"")) % FLOOD:
                    await asyncio.sleep(0)
            seconds = time.perf_counter() - began
            assert total == count // FLOOD * FLOOD, total
            return rate(total, seconds)

    return asyncio.run(run())


# ---- the table

CONTENDERS: dict[str, tuple[str | None, Measure]] = {
    "ours": (None, ours("plain")),
    "ours, sealed": (None, ours("sealed")),
    "ours, uvloop": ("uvloop", ours("uvloop")),
    "thespian": ("thespian", thespian),
    "xoscar": ("xoscar", xoscar),
}
COUNTS = {"tell": 200_000, "ask": 10_000, "large": 2_000}
GOALS: dict[str, tuple[tuple[str, str, float], ...]] = {
    "tell": (("per_s", ">=", 60_000.0),),
    "ask": (("p50_us", "<=", 500.0), ("p99_us", "<=", 2_000.0)),
    "large": (),
}


def main() -> int:
    """Run what the arguments say and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the operations, one round")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", action="append", choices=list(COUNTS), help="only these cases")
    parser.add_argument("--single", nargs=3, metavar=("CASE", "CONTENDER", "COUNT"), help=argparse.SUPPRESS)
    parser.add_argument("--serve", metavar="VARIANT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        run_loop(options.serve, our_server(options.serve))
        return 0
    if options.single:
        case, contender, count = options.single
        count = max(FLOOD, int(count)) if case == "tell" else int(count)
        loop_ns = calibrate_ns()
        print(json.dumps(CONTENDERS[contender][1](case, count) | {"loop_ns": loop_ns}))
        return 0
    missing = [
        name
        for name, (package, _) in CONTENDERS.items()
        if package is not None and importlib.util.find_spec(package) is None
    ]
    rounds = 1 if options.quick else options.rounds
    results = [run_case(case, rounds, options.quick, missing) for case in options.case or COUNTS]
    if options.json:
        print(json.dumps({"python": sys.version.split()[0], "missing": missing, "cases": results}, indent=2))
    else:
        for result in results:
            show(result)
        for name in missing:
            print(f"{name} is not installed here: left out")
    return 0


def run_case(case: str, rounds: int, quick: bool, missing: list[str]) -> dict[str, Any]:
    """Measure every contender that is there, in turn within each round."""
    count = COUNTS[case] // 10 if quick else COUNTS[case]
    there = [name for name in CONTENDERS if name not in missing]
    figures: dict[str, list[Figures]] = {name: [] for name in there}
    for _ in range(rounds):
        for name in there:
            figures[name].append(measure_apart(case, name, count))
    medians = {
        name: {key: statistics.median(each[key] for each in all_rounds) for key in all_rounds[0]}
        for name, all_rounds in figures.items()
    }
    ratios = {
        name: medians["ours"]["per_s"] / figure["per_s"] for name, figure in medians.items() if name != "ours"
    }
    goals = [
        {"figure": key, "sign": sign, "goal": goal, "got": medians["ours"][key]}
        for key, sign, goal in GOALS[case]
    ]
    return {"case": case, "operations": count, "median": medians, "ours_over": ratios, "goals": goals}


def measure_apart(case: str, contender: str, count: int) -> Figures:
    """Run one measurement in processes of its own."""
    command = [sys.executable, "-m", "benchmarks.remote", "--single", case, contender, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{case} of {contender} failed:\n{done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def show(result: dict[str, Any]) -> None:
    """Print one case as lines."""
    print(f"{result['case']} ({result['operations']:,})")
    for name, figure in result["median"].items():
        text = f"{figure['per_s']:>10,.0f}/s  {figure['us']:>9,.1f} µs"
        if "p50_us" in figure:
            text += f"   p50 {figure['p50_us']:>8,.0f} µs  p99 {figure['p99_us']:>8,.0f} µs"
        ratio = result["ours_over"].get(name)
        loop = f"   loop {figure['loop_ns']:3.0f} ns"
        print(f"  {name:14} {text}{loop}" + ("" if ratio is None else f"   ours over it: {ratio:.2f}"))
    for goal in result["goals"]:
        met = goal["got"] >= goal["goal"] if goal["sign"] == ">=" else goal["got"] <= goal["goal"]
        print(
            f"  goal: {goal['figure']} {goal['sign']} {goal['goal']:,.0f}: "
            f"{'met' if met else 'NOT met'} ({goal['got']:,.0f})"
        )


if __name__ == "__main__":
    sys.exit(main())
