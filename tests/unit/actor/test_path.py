"""Addresses and paths: one text form, read back exactly, and nothing else is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.actor import ActorPath, Address, InvalidPathError

names = st.from_regex(r"[A-Za-z0-9_$][A-Za-z0-9_$.+=,:@~-]{0,20}", fullmatch=True)
systems = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
hosts = st.sampled_from(["127.0.0.1", "worker-3.example.org", "::1", "fe80::1%eth0", "localhost"])
incarnations = st.integers(0, 2**63)
addresses = st.one_of(
    st.builds(Address, systems, st.none(), st.none(), incarnations),
    st.builds(Address, systems, hosts, st.integers(0, 65535), incarnations),
)
paths = st.builds(ActorPath, addresses, st.lists(names, max_size=5).map(tuple), st.integers(0, 2**63))


@given(paths)
def test_a_path_is_read_back_as_it_was_written(path: ActorPath) -> None:
    assert ActorPath.parse(str(path)) == path
    assert Address.parse(str(path.address)) == path.address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/user/x",
        "http://s/user",
        "drivetrain://",
        "drivetrain://s@host/user/x",
        "drivetrain://s@host:123456/user/x",
        "drivetrain://s~0/user/x",
        "drivetrain://s~1/user//x",
        "drivetrain://s~1/user/x#",
        "drivetrain://s~1/user/x#one",
        "drivetrain://s~1/user/x#٣",
        "drivetrain://s~1/user/../x/ y",
        "drivetrain://s~1",
        "drivetrain://s@a b:1~1/user/x",
    ],
)
def test_anything_else_is_not_a_path(text: str) -> None:
    with pytest.raises(InvalidPathError):
        ActorPath.parse(text)


@given(st.text(max_size=60).map(lambda text: f"drivetrain://{text}"))
def test_garbage_is_refused_or_read_back(text: str) -> None:
    try:
        path = ActorPath.parse(text)
    except InvalidPathError:
        return
    assert ActorPath.parse(str(path)) == path


def test_a_host_comes_with_a_port() -> None:
    with pytest.raises(InvalidPathError):
        Address("s", "host", None, 1)
    with pytest.raises(InvalidPathError):
        Address("s", None, 1, 1)


def test_an_address_without_incarnation_matches_every_life_at_its_place() -> None:
    here = Address("s", "127.0.0.1", 7070, 5)
    assert Address("s", "127.0.0.1", 7070, 0).matches(here)
    assert here.matches(here)
    assert not Address("s", "127.0.0.1", 7070, 4).matches(here)
    assert not Address("s", "127.0.0.1", 7071, 0).matches(here)
    assert not Address("t", "127.0.0.1", 7070, 0).matches(here)


def test_the_parts_of_a_path_are_shown() -> None:
    path = ActorPath.parse("drivetrain://master@10.0.0.1:7070~83641/user/apps/wc#17")
    assert (path.name, path.local, path.uid) == ("wc", "/user/apps/wc", 17)
    assert path.address == Address("master", "10.0.0.1", 7070, 83641)
    root = ActorPath(path.address, (), 1)
    assert (root.name, root.local) == ("/", "/")
