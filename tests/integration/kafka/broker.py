"""A real Kafka broker on this machine: one KRaft node, for the tests and for trying things out.

Its jars (broker.jars, pinned) are fetched once into the user's cache. A broker started by a test dies with
the process that started it, whatever kills that. By hand: scripts/kafka.sh start | stop | status | fetch |
topic.

A broker's files are in one directory: `server.properties`, `data`, `log.txt`, and `pid` when it was started
by hand. So a killed broker is started again on the same port with the same data.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from drivetrain.config import Config
from drivetrain.spark.session.jars import cached, fetch
from drivetrain.spark.session.java import java_program
from drivetrain.spark.session.kafka_connector import connector_jars

START_S = 180.0
_PINNED = Path(__file__).with_name("broker.jars")
_CLUSTER_ID = "ZHJpdmV0cmFpbi10ZXN0cw"
_JAVA = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


def _pins() -> dict[str, str]:
    lines = [line for line in _PINNED.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split(" ", 1) for line in lines)


def broker_jars() -> list[Path]:
    """The broker's jars, fetched the first time."""
    pins = _pins()
    return fetch(list(pins), pins)


class Broker:
    """One broker in `directory`: a new one, or the one that ran there before. A context manager.

    `settings` are further lines of server.properties, and `protocols` further listeners (SASL_SSL, …), each
    with a port of its own, in `addresses`; both are used only when the directory is new.
    """

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        protocols: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self._properties = directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        if not self._properties.is_file():
            self._make(port or _free_port(), settings or {}, protocols)
        told = dict(line.split("=", 1) for line in self._properties.read_text().splitlines())
        listeners = told["advertised.listeners"].split(",")
        self.addresses: dict[str, str] = dict(listener.split("://") for listener in listeners)
        self.bootstrap = self.addresses["PLAINTEXT"]

    def _make(self, port: int, settings: Mapping[str, str], protocols: Sequence[str]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        controller, *ports = _free_ports(1 + len(protocols))
        listeners = [f"PLAINTEXT://127.0.0.1:{port}"]
        listeners += [f"{name}://127.0.0.1:{n}" for name, n in zip(protocols, ports, strict=True)]
        chosen = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{controller}"]),
            "advertised.listeners": ",".join(listeners),
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in ("PLAINTEXT", *protocols))]
            ),
            "log.dirs": str(self.directory / "data"),
            # One node, a small heap.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "log.cleaner.dedupe.buffer.size": "4194304",
            # Shorter delays than in a real broker.
            "group.initial.rebalance.delay.ms": "0",
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "500",
            "log.segment.delete.delay.ms": "100",
            "log.retention.check.interval.ms": "500",
            # For the tests.
            "auto.create.topics.enable": "false",
            "log.retention.ms": "-1",  # their timestamps are of years ago
            "message.max.bytes": str(16 * 2**20),
            "replica.fetch.max.bytes": str(16 * 2**20),
            **settings,
        }
        aside = self.directory / ".server.properties"
        aside.write_text("".join(f"{key}={value}\n" for key, value in chosen.items()))
        self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(aside))
        os.replace(aside, self._properties)

    def _java(self, *arguments: str) -> None:
        done = subprocess.run(_command(*arguments), capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{arguments[0]} failed:\n{done.stdout}{done.stderr}")

    def start(self, *, outlive: bool = False) -> Broker:
        """Start it, and wait until it answers. With `outlive` it keeps running when this process ends."""
        with (self.directory / "log.txt").open("ab") as log:
            command = _command("kafka.Kafka", str(self._properties))
            self._process = subprocess.Popen(
                command if outlive else [*_die_with_parent(), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=outlive,
            )
        deadline = time.monotonic() + START_S
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(
                    f"the broker does not start:\n{(self.directory / 'log.txt').read_text()[-4000:]}"
                )
            time.sleep(0.1)
        return self

    def answers(self) -> bool:
        """Whether a client gets an answer."""
        host, port = self.bootstrap.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return bool(self.admin.list_topics(timeout=2).brokers)
        except (OSError, KafkaException):
            return False

    @property
    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def stop(self) -> None:
        """Shut it down; it keeps its data."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a power cut would; it keeps its data."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)
        self._process = None

    # -- for tests ------------------------------------------------------------------------

    @functools.cached_property
    def admin(self) -> AdminClient:
        """A client for topics and groups, which logs nothing while the broker is unreachable."""
        quiet = {"log_level": 0, "reconnect.backoff.max.ms": 200}
        return AdminClient({"bootstrap.servers": self.bootstrap, **quiet})

    def create(self, topic: str, partitions: int = 1, **settings: str) -> str:
        """Create a topic; `_` in a setting stands for a dot. Returns its name."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)
        self._wait(lambda: len(self._partitions(topic)) == partitions)
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self.admin.delete_topics([topic])[topic].result(30)
        self._wait(lambda: topic not in self.admin.list_topics(timeout=5).topics)

    def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic more partitions."""
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)
        self._wait(lambda: len(self._partitions(topic)) == total)

    def configure(self, topic: str, **settings: str) -> None:
        """Change a topic's settings; `_` stands for a dot."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the messages of partitions before an offset, as retention would."""
        asked = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        for told in self.admin.delete_records(asked, request_timeout=60, operation_timeout=60).values():
            told.result(60)

    def _partitions(self, topic: str) -> list[int]:
        found = self.admin.list_topics(timeout=5).topics.get(topic)
        return [n for n, p in found.partitions.items() if p.leader >= 0] if found else []

    def _wait(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("the broker did not come to it")
            time.sleep(0.05)

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _command(*arguments: str) -> list[str]:
    java = java_program()
    assert java is not None, "a broker needs Java"
    return [java, *_JAVA, "-cp", ":".join(map(str, broker_jars())), *arguments]


def _free_port() -> int:
    return _free_ports(1)[0]


def _die_with_parent() -> tuple[str, ...]:
    _find_modules_of_tests()
    from server_process import DIE_WITH_PARENT

    return DIE_WITH_PARENT


def _find_modules_of_tests() -> None:
    sys.path.append(str(Path(__file__).parents[2]))  # scripts and benchmarks use this module too


def _free_ports(count: int) -> list[int]:
    _find_modules_of_tests()
    from free_ports import free_port

    return [free_port() for _ in range(count)]


# -- by hand ---------------------------------------------------------------------------------------------


def _running(directory: Path) -> int | None:
    """The broker that was started by hand there, if it runs."""
    try:
        pid = int((directory / "pid").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if str(directory).encode() in command else None


def _config() -> Config:
    file = Path("drivetrain.toml")
    return Config.load(file if file.is_file() else None, os.environ)


def _by_hand(arguments: list[str]) -> Iterator[str]:
    what = arguments[0] if arguments else "status"
    directory = Path(os.environ.get("KAFKA_DIRECTORY") or Path(__file__).parents[3] / ".kafka").resolve()
    pid = _running(directory)
    if what == "fetch":
        connector = connector_jars(_config()) or []
        yield f"kafka: a broker of {len(broker_jars())} jars, and Spark's connector, in {connector[0].parent}"
    elif what == "fetched":
        if cached(list(_pins())) is None or connector_jars(_config(), fetch=False) is None:
            raise SystemExit(1)
    elif what == "start":
        broker = Broker(directory, port=int(os.environ.get("KAFKA_PORT", "9092")))
        if pid is None:
            broker.start(outlive=True)
            pid = broker.pid
            (directory / "pid").write_text(f"{pid}\n")
        yield f"kafka: runs at {broker.bootstrap} (process {pid}, data in {directory})"
    elif what == "topic" and pid is not None and len(arguments) > 1:
        count = int(arguments[2]) if len(arguments) > 2 else 1
        yield f"kafka: made {Broker(directory).create(arguments[1], count)}, {count} partitions"
    elif what == "stop" and pid is not None:
        os.kill(pid, signal.SIGTERM)
        while _running(directory) is not None:
            time.sleep(0.1)
        yield f"kafka: stopped; its data stays in {directory}"
    elif what in ("status", "stop", "topic"):
        yield f"kafka: {'does not run' if pid is None else f'runs at {Broker(directory).bootstrap}'}"
    else:
        raise SystemExit("usage: scripts/kafka.sh start | stop | status | fetch | topic NAME [PARTITIONS]")


if __name__ == "__main__":
    for line in _by_hand(sys.argv[1:]):
        print(line)
