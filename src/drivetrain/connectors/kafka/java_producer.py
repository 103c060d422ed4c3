"""Kafka's own transactional producer, in Spark's Java process, with messages that never become Python's.

The problem: a Python object for each key and value, and a call for each message, take most of what sending a
batch costs.

The design: two Java classes, whose sources are part of this package, read the files of a prepared batch and
call Kafka's Java client, which comes with Spark's connector. One call from Python sends a file. Spark's Java
compiler compiles them when a process makes its first producer, in a few tenths of a second: the jar of
`drivetrain warm-up` is on Java's class path, whose classes do not see those of `spark.jars`. Only the driver
needs them.

Invariants:

1. Each error of Java's comes out as `ClientError`, with the name that Kafka's protocol gives it.
2. A file is verified against its size and checksum before a message of it is sent.

Called by `transactional_producer`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from drivetrain.config import Config
from drivetrain.connectors.kafka.client_error import ClientError
from drivetrain.core.channel.channel_log import Segment
from drivetrain.spark.session.spark_session import session

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

_SOURCES: Final = Path(__file__).with_name("java") / "drivetrain" / "kafka"
_CLASSES: Final = ("MessageFile", "TransactionSender")
"""In the order in which they need each other."""
_COMPILED: Final = "_drivetrain_transaction_sender"
_compiling = threading.Lock()
DAMAGED: Final = "Damaged"
"""The name of the error for a file that is not as it was written."""


class JavaProducer:
    """One producer; its calls wait at most for `max.block.ms` of the settings, or until it is closed."""

    def __init__(
        self, config: Config | None, application: str, settings: Mapping[str, str], topic: str | None
    ) -> None:
        """Connects to nothing yet; raises `ClientError` for settings that the client refuses.

        `topic` is that of messages that name none.
        """
        gateway = _gateway(config, application)
        properties = gateway.jvm.java.util.Properties()
        for name, value in settings.items():
            properties.setProperty(name, value)
        nothing = gateway.new_array(gateway.jvm.java.lang.Object, 0)
        self._sender: Any = _sender_class(gateway).getConstructors()[0].newInstance(nothing)
        self._called(lambda: self._sender.connect(properties, topic))

    def init(self) -> None:
        """Fence every other producer with this transactional id, and end its transaction."""
        self._called(self._sender.init)

    def begin(self) -> None:
        """Begin a transaction."""
        self._called(self._sender.begin)

    def send(self, segment: Segment) -> int:
        """Give the messages of a file to the client, which sends them on; returns their number."""
        return int(self._called(lambda: self._sender.send(segment.path, segment.bytes, segment.crc32)))

    def mark(self, group: str, topic: str, offset: int, metadata: str) -> None:
        """Commit an offset with the transaction."""
        self._called(lambda: self._sender.mark(group, topic, offset, metadata))

    def commit(self) -> None:
        """Wait until all messages have arrived, and commit the transaction."""
        self._called(self._sender.commit)

    def abort(self) -> None:
        """Abort the transaction."""
        self._called(self._sender.abort)

    def close(self) -> None:
        """End the connections; a call of another thread that has not returned fails."""
        self._called(self._sender.close)

    def refusal(self) -> tuple[ClientError, str] | None:
        """Why the first message was not accepted that was not, and where it should have gone."""
        found = self._called(self._sender.refusal)
        if found is None:
            return None
        *described, topic, key = found.split("\0", 5)
        return _error("\0".join(described)), f"topic {topic}, key {key!r}"

    def _called(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Py4JJavaError as error:
            # Nothing else of it is kept: its text may contain secrets.
            raise _error(self._sender.described(error.java_exception)) from None


def _error(described: str) -> ClientError:
    name, again, passes, text = described.split("\0", 3)
    return ClientError(name, text, again == "true", passes == "true")


def _gateway(config: Config | None, application: str) -> JavaGateway:
    """The connection to Spark's Java, which is started if it is not there: what waits from before may be
    published before the engine is made."""
    if SparkContext._active_spark_context is None:
        session(config or Config.load(None, {}, {}), application, kafka=True)
    context: Any = SparkContext._active_spark_context
    return context._gateway


def _sender_class(gateway: JavaGateway) -> Any:
    """The class, compiled once for each Java process."""
    with _compiling:
        found = vars(gateway).get(_COMPILED)
        if found is None:
            found = _compiled(gateway.jvm)
            setattr(gateway, _COMPILED, found)
    return found


def _compiled(jvm: Any) -> Any:
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = None
    for name in _CLASSES:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook((_SOURCES / f"{name}.java").read_text())
        loader = compiler.getClassLoader()
        found = loader.loadClass(f"drivetrain.kafka.{name}")
    return found
