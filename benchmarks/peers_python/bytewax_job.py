"""The jobs in Bytewax: one process per core, because the threads of one share Python's lock.

The processes are those of a Bytewax cluster: this one, which is measured, and others that it starts before.
No recovery store, as in its documentation's examples for throughput: its state is lost with the process.

    .venv-peers/bytewax/bin/python benchmarks/peers_python/bytewax_job.py '{"job": "wordcount", …}'
"""

import json
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.files import DirSink, DirSource
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators import windowing
from bytewax.outputs import FixedPartitionedSink, StatefulSinkPartition
from bytewax.run import cli_main
from meter import for_warm_up, given, measured

BATCH = 5_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SENDING = {"linger.ms": "100", "compression.type": "lz4"}


def wordcount(job):
    flow = Dataflow("wordcount")
    lines = op.input("lines", flow, DirSource(Path(job["lines"]), batch_size=BATCH))
    words = op.flat_map("words", lines, str.split)
    counts = op.count_final("count", words, lambda word: word)
    return written(flow, op.map("row", counts, lambda pair: (pair[0], f"{pair[0]},{pair[1]}")), job)


def windows(job):
    flow = Dataflow("windows")
    tens = windowing.TumblingWindower(length=timedelta(seconds=10), align_to=EPOCH)
    sums = windowing.fold_window("window", *timed(flow, job), tens, lambda: (0, 0), add, merge, ordered=False)
    return written(flow, op.map("row", sums.down, row), job)


def timed(flow, job):
    """The events, and the clock of their windows."""
    lines = op.input("lines", flow, DirSource(Path(job["lines"]), batch_size=BATCH))
    events = op.map("parse", lines, parsed)
    # The files are read side by side: no watermark could tell what is late.
    return events, windowing.EventClock(lambda event: event[0], timedelta(days=365), to_system_utc=never)


def never(_time):
    """When a window closes by system time: only the end of the input closes it."""


def parsed(line):
    event = json.loads(line)
    return event["key"], (datetime.fromisoformat(event["ts"]), event["value"])


def add(state, event):
    return state[0] + 1, state[1] + event[1]


def merge(one, other):
    return one[0] + other[0], one[1] + other[1]


def row(pair):
    key, (window, (n, total)) = pair
    return key, f"{window * 10_000},{key},{n},{total}"


def sessions(job):
    flow = Dataflow("sessions")
    gap = timedelta(milliseconds=job["gap_ms"])
    folding = windowing.SessionWindower(gap), lambda: None, lengthen, unite
    sums = windowing.fold_window("session", *timed(flow, job), *folding, ordered=False)
    return written(flow, op.map("row", sums.down, lambda pair: session_row(pair, gap)), job)


def lengthen(session, event):
    """Count, sum, first and last moment of a session with one more event."""
    one = (1, event[1], event[0], event[0])
    return one if session is None else unite(session, one)


def unite(one, other):
    return one[0] + other[0], one[1] + other[1], min(one[2], other[2]), max(one[3], other[3])


def session_row(pair, gap):
    key, (_window, (n, total, first, last)) = pair
    start_ms, end_ms = ((moment - EPOCH) // timedelta(milliseconds=1) for moment in (first, last + gap))
    return key, f"{start_ms},{end_ms},{key},{n},{total}"


def kafka(job):
    """From a topic to a topic, as its Kafka operators do it: at least once with a recovery store."""
    flow, brokers = Dataflow("kafka"), [job["bootstrap"]]
    # Imported here because only this job needs the client.
    from bytewax.connectors.kafka import KafkaSinkMessage
    from bytewax.connectors.kafka import operators as kop

    read = kop.input("in", flow, brokers=brokers, topics=[job["topic"]], tail=False, batch_size=BATCH)
    events = op.map("parse", read.oks, lambda message: json.loads(message.value))
    kept = op.filter("filter", events, lambda event: event["value"] < job["below"])
    made = op.map("project", kept, lambda event: KafkaSinkMessage(None, projected(event)))
    kop.output("out", made, brokers=brokers, topic=job["out_topic"], add_config=SENDING)
    return flow


def projected(event):
    return json.dumps({"key": event["key"], "value": event["value"]}).encode()


def sol(job):
    """A sink with partitions gets its items by the hash of their keys: the only shuffle without state."""
    flow = Dataflow("sol")
    messages = op.input("messages", flow, Messages(job["count"]))
    op.output("sink", messages, Counting(job["cores"], job["out"]))
    return flow


class Messages(DynamicSource):
    def __init__(self, count):
        self.count = count

    def build(self, _step_id, worker_index, worker_count):
        return Numbers(worker_index, self.count, worker_count)


class Numbers(StatelessSourcePartition):
    def __init__(self, first, count, step):
        self.numbers = range(first, count, step)
        self.at = 0

    def next_batch(self):
        some = self.numbers[self.at : self.at + BATCH]
        if not some:
            raise StopIteration
        self.at += BATCH
        return [(str(number), "x" * 100) for number in some]


class Counting(FixedPartitionedSink):
    def __init__(self, parts, out):
        self.parts, self.out = parts, out

    def list_parts(self):
        return [str(part) for part in range(self.parts)]

    def build_part(self, _step_id, for_part, _resume_state):
        return Count(Path(self.out, f"{for_part}.csv"))


class Count(StatefulSinkPartition):
    def __init__(self, file):
        self.file, self.messages, self.size = file, 0, 0

    def write_batch(self, values):
        self.messages += len(values)
        self.size += sum(map(len, values))

    def snapshot(self):
        return None

    def close(self):
        self.file.write_text(f"{self.messages},{self.size}\n")


def written(flow, rows, job):
    op.output("out", rows, DirSink(Path(job["out"]), job["cores"]))
    return flow


JOBS = {"wordcount": wordcount, "windows": windows, "sessions": sessions, "kafka": kafka, "sol": sol}


# -- the cluster -------------------------------------------------------------------------------------


def work(job, number, ports):
    flow = JOBS[job["job"]](job)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    cli_main(flow, workers_per_process=1, process_id=number, addresses=addresses)


def run(job, others):
    Path(job["out"]).mkdir(parents=True)
    ports = free_ports(job["cores"])
    for number, other in enumerate(others, 1):
        print(json.dumps([job, number, ports]), file=other.stdin, flush=True)
    work(job, 0, ports)
    for other in others:
        other.stdout.readline()


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def main():
    if len(sys.argv) == 1:
        for line in sys.stdin:
            work(*json.loads(line))
            print("done", flush=True)
        return
    job = given()
    command = [sys.executable, __file__]
    others = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(1, job["cores"])
    ]
    run({**job, **for_warm_up(job), "out": f"{job['work']}/warm-out"}, others)
    with measured():
        run({**job, "out": f"{job['work']}/out"}, others)
    for other in others:
        other.stdin.close()


if __name__ == "__main__":
    main()
