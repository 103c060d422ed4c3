"""Cutting a stream into frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.actor.remote.framing import HEADER_BYTES, FrameReader, header_of
from drivetrain.actor.remote.remote_errors import ProtocolViolationError


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(place, len(stream)) for place in cuts})
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=12), st.lists(st.integers(0, 600), max_size=30))
def test_whatever_the_pieces_the_frames_are_those_sent(frames: list[bytes], cuts: list[int]) -> None:
    reader = FrameReader(40)
    stream = b"".join(header_of(frame) + frame for frame in frames)
    got = [bytes(frame) for piece in cut(stream, cuts) for frame in reader.feed(piece)]
    assert got == frames
    assert reader.held_bytes == 0


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6), st.integers(1, 39))
def test_no_more_than_one_incomplete_frame_is_held(frames: list[bytes], size: int) -> None:
    reader = FrameReader(40)
    stream = b"".join(header_of(frame) + frame for frame in frames)
    for piece in cut(stream, list(range(0, len(stream), size))):
        list(reader.feed(piece))
        assert reader.held_bytes < 40 + HEADER_BYTES


@pytest.mark.parametrize("size", [0, 41, 2**32 - 1])
@pytest.mark.parametrize("step", [1, 3, 100])
def test_an_impossible_length_is_refused_before_the_frame_is_there(size: int, step: int) -> None:
    reader = FrameReader(40)
    stream = header_of(b"good") + b"good" + size.to_bytes(4, "big") + b"x"
    got: list[bytes] = []

    def feed_all() -> None:
        for piece in cut(stream, list(range(0, len(stream), step))):
            got.extend(bytes(frame) for frame in reader.feed(piece))

    with pytest.raises(ProtocolViolationError, match="not a frame"):
        feed_all()
    assert got == [b"good"]
    assert list(reader.feed(header_of(b"more") + b"more")) == []


def test_a_limit_raised_between_two_frames_of_one_piece_counts_for_the_second() -> None:
    reader = FrameReader(4)
    frames = reader.feed(header_of(b"tiny") + b"tiny" + header_of(b"larger") + b"larger")
    assert bytes(next(frames)) == b"tiny"
    reader.limit_bytes = 10
    assert [bytes(frame) for frame in frames] == [b"larger"]
