"""Queries Kafka's brokers for a source: which topics and offsets there are.

The problem: for a missing topic, a refused login or a topic that was deleted and created again meanwhile,
Spark's connector reports either nothing or a page of Java, and only once the query runs.

The design: Kafka's own administration client, in Spark's Java process, which has it from the connector: so it
takes the same settings as the connector. Each call has a time limit; this module classifies its errors
by who must act: the user (`InputError`) or nobody yet (`UnavailableError`).

Invariants:

1. Nothing here changes a topic; `make_compacted` creates one. Only `commit` changes the offsets of a consumer
   group.
2. No call takes longer than `timeout_ms`; no error carries a secret.

Called by the Kafka source's adapter, from the thread that compiles, runs batches or polls, one at a time.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from py4j.protocol import Py4JJavaError

from drivetrain.connectors.kafka.client_options import Secrets
from drivetrain.errors import DrivetrainError, InputError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

Partition = tuple[str, int]
TIMEOUT_MS = 60_000
_ADMIN = "org.apache.kafka.clients.admin"
_COMMON = "org.apache.kafka.common"
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id of all topics of brokers that are older than ids (Kafka 2.8)."""
_REFUSED = (
    "AuthenticationException", "AuthorizationException", "SslAuthenticationException",
    "SaslAuthenticationException", "TopicAuthorizationException", "ClusterAuthorizationException",
    "GroupAuthorizationException", "ConfigException", "InvalidTopicException",
)  # fmt: skip


@dataclass(frozen=True)
class Topic:
    """A topic as it is now; its `id` changes when it is deleted and created again."""

    id: str
    partitions: int


class KafkaAdmin:
    """One administration client, created at its first use; see the module docstring."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        options: Mapping[str, str],
        where: str,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self._jvm = spark._jvm
        self._bootstrap = bootstrap
        self._options = dict(options)
        self._where = where
        self._timeout_ms = timeout_ms
        self._secrets = Secrets(options)
        self._client: Any = None
        self._pending: Any = None
        self._classes: dict[str, Any] = {}
        self._asked: tuple[tuple[str, ...], Any] | None = None
        """The ids that the last `has_topics` asked for, and as Java has them."""
        self._lock = threading.RLock()

    def topics(self, names: Iterable[str], pattern: str | None = None) -> dict[str, Topic]:
        """The topics of these names that exist, and those that match `pattern`, keyed by name."""
        with self._asking() as client:
            wanted = list(names)
            if pattern is not None:
                known = self._get(client.listTopics().names()).toArray()
                # Spark's connector matches with Java's regular expressions; so does this.
                wanted = [name for name in known if self._jvm.java.util.regex.Pattern.matches(pattern, name)]
            listed = self._java_class("java.util.ArrayList")()
            for name in wanted:
                listed.add(name)
            found: dict[str, Topic] = {}
            futures = client.describeTopics(listed).topicNameValues()
            for name in wanted:
                try:
                    described = self._get(futures[name])
                except Py4JJavaError as error:
                    if "UnknownTopicOrPartitionException" in _classes(error):
                        continue
                    raise
                found[name] = Topic(described.topicId().toString(), described.partitions().size())
            return found

    def has_topics(self, ids: Iterable[str]) -> bool:
        """Whether there are topics with all of these ids; False also where brokers do not know ids.

        One request and few calls, for a question that every batch asks: `topics` takes several times as long.
        """
        wanted = tuple(sorted(ids))
        if _NO_ID in wanted:
            return False
        with self._asking() as client:
            if self._asked is None or self._asked[0] != wanted:
                listed = self._java_class("java.util.ArrayList")()
                for id in wanted:
                    listed.add(self._java_class(f"{_COMMON}.Uuid").fromString(id))
                self._asked = (wanted, self._java_class(f"{_COMMON}.TopicCollection").ofTopicIds(listed))
            try:
                self._get(client.describeTopics(self._asked[1]).allTopicIds())
            except Py4JJavaError as error:
                if "UnknownTopicIdException" in _classes(error):
                    return False
                raise
            return True

    def offsets(
        self, partitions: Iterable[Partition], at: Literal["earliest", "latest"] | int
    ) -> dict[Partition, int]:
        """The offsets of partitions that exist: the first, the next to come, or the first at or after a time.

        If all messages are older than the time (ms since the epoch), it is the next one to come.
        """
        wanted = list(partitions)
        found = self._list_offsets(wanted, at)
        beyond = [p for p, offset in found.items() if offset < 0]
        return {**found, **(self._list_offsets(beyond, "latest") if beyond else {})}

    def _list_offsets(self, wanted: list[Partition], at: str | int) -> dict[Partition, int]:
        with self._asking() as client:
            package = getattr(self._jvm, _ADMIN)
            spec = (
                package.OffsetSpec.forTimestamp(at)
                if isinstance(at, int)
                else getattr(package.OffsetSpec, at)()
            )
            asked = self._jvm.java.util.HashMap()
            for partition in wanted:
                asked.put(self._java(partition), spec)
            level = self._jvm.org.apache.kafka.common.IsolationLevel
            committed = self._options.get("isolation.level") == "read_committed"
            options = package.ListOffsetsOptions(
                level.READ_COMMITTED if committed else level.READ_UNCOMMITTED
            )
            listed = self._get(client.listOffsets(asked, options).all())
            return {p: int(listed[self._java(p)].offset()) for p in wanted}

    def sizes(self) -> dict[Partition, int]:
        """The bytes that the brokers keep of each partition, as stored (perhaps compressed)."""
        found: dict[Partition, int] = {}
        with self._asking() as client:
            brokers = self._jvm.java.util.ArrayList()
            for node in self._get(client.describeCluster().nodes()).toArray():
                brokers.add(node.id())
            for directories in self._get(client.describeLogDirs(brokers).allDescriptions()).values():
                for directory in directories.values():
                    for partition, replica in directory.replicaInfos().items():
                        at = (str(partition.topic()), int(partition.partition()))
                        found[at] = max(found.get(at, 0), int(replica.size()))
        return found

    def make_compacted(self, topic: str) -> None:
        """Create a topic of one partition that keeps the newest value of each key.

        Raises `InputError` if the topic exists and is not compacted.
        """
        package = getattr(self._jvm, _ADMIN)
        with self._asking() as client:
            new, none = self._jvm.java.util.ArrayList(), self._jvm.java.util.Optional.empty()
            settings = self._jvm.java.util.HashMap()
            settings.put("cleanup.policy", "compact")
            new.add(package.NewTopic(topic, self._jvm.java.util.Optional.of(1), none).configs(settings))
            try:
                self._get(client.createTopics(new).all())
            except Py4JJavaError as error:
                if "TopicExistsException" not in _classes(error):
                    raise
            else:
                return
            resource = self._jvm.org.apache.kafka.common.config.ConfigResource
            asked = self._jvm.java.util.ArrayList()
            asked.add(resource(getattr(resource.Type, "TOPIC"), topic))  # noqa: B009 - a Java constant
            described = next(iter(self._get(client.describeConfigs(asked).all()).values()))
            policy = str(described.get("cleanup.policy").value())
        if policy != "compact":
            raise InputError(
                "the topic for offsets is not compacted, so Kafka would delete offsets",
                where=f"topic {topic}",
                expected="cleanup.policy=compact",
                got=policy,
                remedy="name another offset_topic, which is then created, or make this one compacted",
            )

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> str | None:
        """Begin to commit offsets to a consumer group; returns the error of the previous commit, if any.

        Waits neither for Kafka nor for another call here: these commits are optional and must not delay
        anything. A concurrent call means that a batch is running, after which there is another commit.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            with self._asking() as client:
                error = self._failed_commit()
                asked = self._jvm.java.util.HashMap()
                for partition, offset in offsets.items():
                    place = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(offset)
                    asked.put(self._java(partition), place)
                self._pending = client.alterConsumerGroupOffsets(group, asked).all()
                return error
        finally:
            self._lock.release()

    def _failed_commit(self) -> str | None:
        """The error of the last commit, if it is known by now."""
        if self._pending is None or not self._pending.isDone():
            return None
        try:
            self._pending.get()
        except Py4JJavaError as error:
            return self._secrets.scrubbed(_message(error))
        return None

    def close(self) -> None:
        """Close the connection; a commit under way may be lost."""
        with self._lock:
            client, self._client = self._client, None
            if client is not None:
                client.close(self._jvm.java.time.Duration.ofMillis(1000))

    def scrubbed(self, text: str) -> str:
        """A text without this source's secrets."""
        return self._secrets.scrubbed(text)

    def _java(self, partition: Partition) -> Any:
        return self._java_class("org.apache.kafka.common.TopicPartition")(*partition)

    def _java_class(self, name: str) -> Any:
        """A Java class, cached; looking one up takes a call to Java for each part of its name."""
        if name not in self._classes:
            self._classes[name] = functools.reduce(getattr, name.split("."), self._jvm)
        return self._classes[name]

    def _get(self, future: Any) -> Any:
        milliseconds = self._java_class("java.util.concurrent.TimeUnit.MILLISECONDS")
        return future.get(self._timeout_ms, milliseconds)

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        with self._lock:
            try:
                if self._client is None:
                    self._client = self._connected()
                yield self._client
            except Py4JJavaError as error:
                raise self.meant(error) from None  # its text may contain secrets

    def _connected(self) -> Any:
        settings = self._jvm.java.util.Properties()
        half = str(max(1000, self._timeout_ms // 2))
        chosen = {
            "default.api.timeout.ms": str(self._timeout_ms),
            "request.timeout.ms": half,
            **self._options,
        }
        for name, value in {**chosen, "bootstrap.servers": self._bootstrap}.items():
            settings.setProperty(name, value)
        return getattr(self._jvm, _ADMIN).AdminClient.create(settings)

    def meant(self, error: Py4JJavaError) -> DrivetrainError:
        """The user's error for an exception of one of Kafka's clients, without secrets."""
        text = self._secrets.scrubbed(_message(error))
        classes = _classes(error)
        if any(name in classes for name in _REFUSED):
            return InputError(
                "Kafka refuses this source",
                where=self._where,
                got=text,
                remedy="check the options (security.protocol, sasl.*, ssl.*) and the rights of this user",
            )
        return UnavailableError(
            "no answer from Kafka",
            where=self._where,
            got=text,
            remedy="check the address, that the broker runs, and that its advertised.listeners are reachable",
        )


def _classes(error: Py4JJavaError) -> str:
    """The class names of an exception and its causes."""
    names: list[str] = []
    cause = error.java_exception
    while cause is not None and len(names) < 10:
        names.append(cause.getClass().getSimpleName())
        cause = cause.getCause()
    return " ".join(names)


def _message(error: Py4JJavaError) -> str:
    """The text of the innermost exception, on one line."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return re.sub(r"\s+", " ", f"{cause.getClass().getSimpleName()}: {cause.getMessage() or ''}")[:500]
