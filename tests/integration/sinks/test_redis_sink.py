"""The Redis sink on a real server, which is killed, loses what it confirmed, or refuses."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis_batches import PASSWORD, entries, opened, published, stage

from drivetrain.connectors.redis.redis_writer import RedisWriter
from drivetrain.errors import DiskFullError, InternalError, OutputError, UnavailableError
from free_ports import free_port
from redis_server import RedisServer

MARK = "drivetrain:app-1:out"
Open = Callable[..., RedisWriter]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that the tests of this module may kill."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.close()


@pytest.fixture
def server(whole: RedisServer, monkeypatch: pytest.MonkeyPatch) -> RedisServer:
    """The server, empty."""
    monkeypatch.setenv(PASSWORD, whole.password)
    whole.client().flushall()
    return whole


@pytest.fixture
def sink(server: RedisServer, tmp_path: Path) -> Open:
    def make(state: str = "state", **settings: Any) -> RedisWriter:
        return opened(server, tmp_path / state, **(settings or {"stream": "events"}))

    return make


def started(directory: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> RedisServer:
    server = RedisServer(directory, *options).start()
    monkeypatch.setenv(PASSWORD, server.password)
    return server


# -- what is written -----------------------------------------------------------------------------------


def test_a_row_is_a_hash_that_replaces_the_one_with_its_key(server: RedisServer, sink: Open) -> None:
    writer = sink(key="word", prefix="count:")
    assert published(writer, 0, word=["a", "b"], n=[1, 2], note=["x", "y"]) == 2
    server.client().hset("count:a", "other", "kept")
    assert published(writer, 1, word=["a", "c", "a"], n=[3, 4, 5], note=["z", None, None]) == 3
    client = server.client()
    assert client.hgetall("count:a") == {"word": "a", "n": "5", "other": "kept"}
    assert client.hgetall("count:b") == {"word": "b", "n": "2", "note": "y"}
    assert client.hgetall("count:c") == {"word": "c", "n": "4"}
    assert client.hgetall(MARK) == {
        "token": writer._outbox.begin().token,
        "epoch": "1",
        "batch": "1",
        "rows": "5",
    }


def test_of_several_rows_with_a_key_the_newest_counts(server: RedisServer, sink: Open) -> None:
    writer = sink(key="k", newest="at")
    at = [3, None, 9, 9, 5]
    assert published(writer, 0, k=["a"] * 5, at=at, v=["x", "y", "z", "last", "end"]) == 5
    assert server.client().hget("a", "v") == "last"


def test_keys_of_several_columns_are_not_confused(server: RedisServer, sink: Open) -> None:
    published(sink(key=["a", "b"], prefix="p:"), 0, a=["x:y", "x", "100%"], b=["z", "y:z", ""], n=[1, 2, 3])
    keys = set(server.client().keys("p:*"))
    assert keys == {"p:x%3Ay:z", "p:x:y%3Az", "p:100%25:"}


def test_rows_expire_unless_they_are_replaced(server: RedisServer, sink: Open) -> None:
    published(sink(key="k", expire="1 h"), 0, k=["a"], n=[1])
    published(sink("two", key="k", prefix="j:", value="json", expire="200 ms"), 1, k=["a"], __json=["{}"])
    assert 0 < server.client().pttl("a") <= 3_600_000
    assert server.client().get("j:a") == "{}"
    time.sleep(0.3)
    assert server.client().get("j:a") is None


def test_a_stream_has_the_rows_in_their_order_and_about_as_many_as_it_may(
    server: RedisServer, sink: Open
) -> None:
    ids = list(range(5_000))
    assert published(sink(stream="events"), 0, id=ids, n=[None, *ids[1:]]) == 5_000
    assert entries(server) == ids
    assert server.client().xrange("events", count=1)[0][1] == {"id": "0"}
    assert published(sink("two", id="two", stream="short", max_length=100), 0, id=ids) == 5_000
    assert 100 <= server.client().xlen("short") < 400
    assert entries(server, "short")[-1] == 4_999


def test_a_key_of_another_type_is_an_error_and_nothing_of_the_batch_is_written(
    server: RedisServer, sink: Open
) -> None:
    client = server.client()
    client.rpush("b", "a list")
    writer = sink(key="k")
    stage(writer, 0, k=["a", "b"], n=[1, 2])
    with pytest.raises(OutputError, match="value of another type") as caught:
        writer.commit(0)
    assert caught.value.got == "b is a list"
    assert client.exists("a") == 0
    client.delete("b")
    assert writer.commit(0) == 2
    client.set("events", "text")
    with pytest.raises(OutputError, match="value of another type"):
        published(sink("two", id="two", stream="events"), 0, id=[1])


# -- once ----------------------------------------------------------------------------------------------


def test_a_batch_that_comes_again_is_written_once(server: RedisServer, sink: Open) -> None:
    writer = sink()
    assert published(writer, 0, id=[1, 2]) == 2
    assert writer.commit(0) == 0
    again = sink()
    again.validate()
    assert again.prepared() == []
    assert again.commit(0) == 0
    assert published(again, 1, id=[3]) == 1
    assert entries(server) == [1, 2, 3]
    with pytest.raises(InternalError):
        again.commit(99)


def test_the_newest_batch_is_known_even_if_the_state_is_older(
    server: RedisServer, sink: Open, tmp_path: Path
) -> None:
    writer = sink()
    assert writer.newest() == -1
    published(writer, 0, n=[1])
    shutil.copytree(tmp_path / "state", tmp_path / "older")
    published(writer, 3, n=[2])
    assert sink().newest() == sink("older").newest() == 3
    assert sink("another").newest() == -1


def test_what_is_prepared_waits_for_another_process_and_can_be_aborted(
    server: RedisServer, sink: Open
) -> None:
    writer = sink()
    stage(writer, 0, id=[1])
    stage(writer, 1, id=[2])
    assert entries(server) == []
    other = sink()
    assert other.prepared() == [0, 1]
    with pytest.raises(InternalError, match="committed before 0"):
        other.commit(1)
    assert other.commit(0) == 1
    other.abort(1)
    assert sink().prepared() == []
    assert entries(server) == [1]


def test_a_process_that_was_taken_for_dead_is_refused(server: RedisServer, sink: Open) -> None:
    late, writer = sink(), sink()
    published(late, 0, id=[0])
    assert published(writer, 1, id=[1]) == 1
    stage(late, 2, id=[2])
    with pytest.raises(OutputError, match="another process of this application"):
        late.commit(2)
    assert entries(server) == [0, 1]
    assert writer.commit(2) == 1
    assert entries(server) == [0, 1, 2]


def test_redis_refuses_a_process_that_does_not_see_what_the_one_after_it_does(
    server: RedisServer, sink: Open, tmp_path: Path
) -> None:
    first = sink()
    published(first, 0, id=[0])
    shutil.copytree(tmp_path / "state", tmp_path / "elsewhere")
    late = sink("elsewhere")
    published(late, 1, id=[1])
    writer = sink()
    assert writer._opened().published == 1
    stage(late, 2, id=[2])
    with pytest.raises(OutputError, match="another process of this application") as caught:
        late.commit(2)
    assert caught.value.got == f"{MARK} has epoch 3; this process, 2"
    assert entries(server) == [0, 1]
    assert published(writer, 2, id=[2]) == 1


def test_an_answer_that_is_lost_is_no_second_batch(
    server: RedisServer, sink: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    import redis

    writer = sink()
    published(writer, 0, id=[0])
    run, lost = redis.Redis.eval, []

    def unanswered(*given: Any) -> Any:
        reply = run(*given)
        if not lost:
            lost.append(reply)
            raise redis.exceptions.ConnectionError("Connection closed by server.")
        return reply

    monkeypatch.setattr(redis.Redis, "eval", unanswered)
    assert published(writer, 1, id=[1, 2]) == 2
    assert len(lost) == 1
    assert entries(server) == [0, 1, 2]


# -- a server that dies --------------------------------------------------------------------------------


def test_a_server_that_is_killed_and_comes_back_is_waited_for(server: RedisServer, sink: Open) -> None:
    writer = sink()
    published(writer, 0, id=[0])
    stage(writer, 1, id=[1])
    server.kill()
    shown: list[int] = []
    publishing = threading.Thread(target=lambda: shown.append(writer.commit(1)))
    publishing.start()
    time.sleep(1)
    assert publishing.is_alive()
    server.start()
    publishing.join(60)
    assert shown == [1]
    assert entries(server) == [0, 1]


def test_a_server_that_is_killed_again_and_again_has_every_row_once(server: RedisServer, sink: Open) -> None:
    writer = sink(stream="events", timeout="120 s", keep="100 ms")
    rows, until = 200, time.monotonic() + 60
    ended = threading.Event()
    last = -1

    def write() -> None:
        nonlocal last
        while not ended.is_set():
            ids = range((last + 1) * rows, (last + 2) * rows)
            assert published(writer, last + 1, id=list(ids)) in (0, rows)
            last += 1

    writing = threading.Thread(target=write)
    writing.start()
    kills = 0
    while (last < 4 or kills < 10) and time.monotonic() < until:
        # Longer each time: on a slow machine the server would never live long enough to confirm a batch.
        time.sleep(0.1 + kills / 100)
        server.kill()
        kills += 1
        server.start()
    ended.set()
    writing.join(120)
    assert not writing.is_alive()
    assert kills > 3
    assert last > 3
    assert entries(server) == list(range((last + 1) * rows))


def test_a_server_that_stays_away_is_an_error_with_a_remedy_and_the_batch_waits(
    server: RedisServer, sink: Open
) -> None:
    writer = sink(stream="events", timeout="1 s")
    stage(writer, 0, id=[1])
    server.kill()
    with pytest.raises(UnavailableError, match="does not answer") as caught:
        writer.commit(0)
    assert "check that it runs" in (caught.value.remedy or "")
    assert server.password not in str(caught.value)
    server.start()
    assert sink().commit(0) == 1


def test_what_a_server_confirmed_and_lost_is_published_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = started(tmp_path / "redis", monkeypatch, "--appendonly", "no")
    try:
        writer = opened(server, tmp_path / "state", stream="events")
        writer.validate()
        assert "does not log commands" in caplog.text
        for batch in range(6):
            published(writer, batch, id=[batch])
            if batch == 2:
                server.client().save()
        server.kill()
        server.start()
        assert entries(server) == [0, 1, 2]
        assert published(writer, 6, id=[6]) == 1
        assert "publishing [3, 4, 5] again" in caplog.text
        assert entries(server) == list(range(7))
        server.kill()
        server.start()
        another = opened(server, tmp_path / "state", stream="events")
        assert published(another, 7, id=[7]) == 1
        assert entries(server) == list(range(8))
        assert int(server.client().hget(MARK, "rows")) == 8
    finally:
        server.close()


@pytest.mark.parametrize("lost", ["snapshot", "everything", "mark"])
def test_what_a_server_lost_and_the_sink_no_longer_has_is_an_error_unless_losses_are_accepted(
    server: RedisServer, sink: Open, lost: str
) -> None:
    writer = sink(stream="events", keep="0 ms")
    for batch in range(4):
        published(writer, batch, id=[batch])
    client = server.client()
    if lost == "snapshot":
        client.hset(MARK, "batch", 1)
    elif lost == "everything":
        client.flushall()
    else:
        client.delete(MARK)
    stage(writer, 4, id=[4])
    for tried in (writer, sink(stream="events", keep="0 ms")):
        with pytest.raises(OutputError, match="lost results that it had confirmed") as caught:
            tried.commit(4)
        assert "on_loss" in (caught.value.remedy or "")
    assert sink(stream="events", keep="0 ms", on_loss="continue").commit(4) == 1
    assert sink(stream="events", keep="0 ms").commit(4) == 0
    assert entries(server)[-1] == 4


def test_a_loss_that_reaches_behind_a_savepoint_is_an_error(
    server: RedisServer, sink: Open, tmp_path: Path
) -> None:
    writer = sink()
    for batch in range(3):
        published(writer, batch, id=[batch])
    copy = tmp_path / "copy"  # a savepoint has the notes of a sink, without its batches
    copy.mkdir()
    shutil.copy(tmp_path / "state" / "publication.json", copy)
    published(writer, 3, id=[3])
    restored = sink("copy")
    assert restored.commit(3) == 0
    published(restored, 4, id=[4])
    server.client().hset(MARK, "batch", 2)  # as if Redis had lost two batches
    stage(restored, 5, id=[5])
    with pytest.raises(OutputError, match="lost results that it had confirmed"):
        restored.commit(5)
    server.client().hset(MARK, "batch", 3)
    assert sink("copy").commit(5) == 1
    assert entries(server)[-2:] == [4, 5]


# -- states --------------------------------------------------------------------------------------------


def test_a_stream_with_entries_of_another_state_is_not_added_to(server: RedisServer, sink: Open) -> None:
    published(sink(), 0, id=[1, 2, 3])
    another = sink("another")
    with pytest.raises(OutputError, match="another state directory"):
        another.validate()
    with pytest.raises(OutputError, match="another state directory"):
        published(another, 0, id=[4])
    with pytest.raises(OutputError, match="3 entries were published"):
        another.check_fresh()
    keeping = sink("another", stream="events", on_fresh="keep")
    keeping.check_fresh()
    keeping.fresh()
    keeping.validate()
    assert published(keeping, 0, id=[4]) == 1
    assert entries(server) == [1, 2, 3, 4]
    emptying = sink("another", stream="events", on_fresh="empty")
    emptying.check_fresh()
    emptying.fresh()
    assert published(emptying, 0, id=[5]) == 1
    assert entries(server) == [5]


def test_rows_that_replace_each_other_may_come_from_another_state(server: RedisServer, sink: Open) -> None:
    one, two = sink(key="k"), sink("another", key="k")
    published(one, 5, k=["a"], n=[1])
    two.validate()
    two.check_fresh()
    published(two, 0, k=["a"], n=[2])
    assert published(sink(key="k"), 6, k=["a"], n=[3]) == 1
    assert server.client().hget("a", "n") == "3"


# -- what is refused -----------------------------------------------------------------------------------


def test_a_wrong_password_is_an_error_at_once(sink: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, "S3cr3t-of-the-test")
    with pytest.raises(OutputError, match="refuses the login") as caught:
        sink().validate()
    assert "S3cr3t" not in str(caught.value)
    assert "REDISCLI_AUTH" in (caught.value.remedy or "")
    monkeypatch.delenv(PASSWORD)
    with pytest.raises(OutputError, match=f"{PASSWORD}, which is not set"):
        sink().validate()


def test_the_password_can_come_from_the_environment(
    server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from drivetrain.api import sinks
    from drivetrain.spark.connector.sink import SinkContext

    monkeypatch.setenv("REDISCLI_AUTH", server.password)
    named = sinks.redis(f"redis://127.0.0.1:{server.port}/1", stream="events")
    writer = RedisWriter(named, SinkContext("app-1", "out", str(tmp_path)))
    writer.validate()
    assert published(writer, 0, id=[1]) == 1
    assert server.client(db=1).xlen("events") == 1
    assert server.client().xlen("events") == 0


def test_no_password_is_kept_anywhere(server: RedisServer, sink: Open, tmp_path: Path) -> None:
    writer = sink()
    published(writer, 0, id=[1])
    assert server.password not in repr(writer._sink) + writer._sink.name
    for path in (tmp_path / "state").rglob("*"):
        if path.is_file():
            assert server.password.encode() not in path.read_bytes(), path


def test_a_user_who_may_not_write_learns_which_rights_are_missing(
    server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.client()
    client.execute_command("ACL", "SETUSER", "reader", "on", ">reader-password", "~other:*", "+@all")
    monkeypatch.setenv("READER", "reader-password")
    from drivetrain.api import sinks
    from drivetrain.spark.connector.sink import SinkContext

    declared = sinks.redis(server.url("READER", user="reader"), stream="events")
    writer = RedisWriter(declared, SinkContext("app-1", "out", str(tmp_path)))
    stage(writer, 0, id=[1])
    with pytest.raises(OutputError, match="may not do that") as caught:
        writer.commit(0)
    assert "drivetrain:*" in (caught.value.remedy or "")
    client.execute_command("ACL", "SETUSER", "reader", "~drivetrain:*")
    with pytest.raises(OutputError, match="may not do that"):
        writer.commit(0)
    client.execute_command("ACL", "SETUSER", "reader", "~events")
    assert writer.commit(0) == 1


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--cluster-enabled", "yes", "--cluster-port", str(free_port())), "node of a Redis Cluster"),
        (("--replicaof", "127.0.0.1", "1"), "is a replica"),
        (("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"), "may delete any key"),
    ],
    ids=["cluster", "replica", "evicting"],
)
def test_a_server_on_which_rows_cannot_be_once_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], what: str
) -> None:
    server = started(tmp_path / "redis", monkeypatch, *options)
    try:
        with pytest.raises(OutputError, match=what) as caught:
            opened(server, tmp_path / "state", key="id").validate()
        assert caught.value.remedy
        if "may delete" in what:
            opened(server, tmp_path / "state", key="id", on_loss="continue").validate()
    finally:
        server.close()


def test_a_server_without_memory_or_disk_writes_nothing_and_the_batch_waits(
    server: RedisServer, sink: Open
) -> None:
    client = server.client()
    writer = sink(key="k", timeout="500 ms")
    published(writer, 0, k=["a"], n=[0])
    try:
        client.config_set("maxmemory", "1mb")
        stage(writer, 1, k=["a", "b"], n=[1, 2])
        with pytest.raises(UnavailableError, match="no memory left") as caught:
            writer.commit(1)
        assert "maxmemory" in (caught.value.remedy or "")
        assert client.hget("a", "n") == "0"
        client.config_set("maxmemory", "0")
        client.config_set("min-replicas-to-write", "1")
        with pytest.raises(UnavailableError, match="does not write now"):
            writer.commit(1)
        assert client.hget("a", "n") == "0"
    finally:
        client.config_set("maxmemory", "0")
        client.config_set("min-replicas-to-write", "0")
    assert writer.commit(1) == 2
    assert client.hget("a", "n") == "1"


def test_a_server_that_cannot_save_is_an_error_about_its_disk(server: RedisServer, sink: Open) -> None:
    import redis

    writer = sink()
    error = redis.exceptions.ResponseError(
        "MISCONF Redis is configured to save RDB snapshots, but it's unable to"
    )
    meant = writer._server.meaning(error)
    assert isinstance(meant, DiskFullError)
    assert writer._server.meaning(ValueError()) is None
