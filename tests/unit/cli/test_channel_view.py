"""What people see of channels: figures they can read, and attention only where it is due."""

from __future__ import annotations

import io
import json

from drivetrain.cli.json_output import as_data
from drivetrain.cli.views.channel_view import WIDE, attention, channels_of, show_delay
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.figures import show_size
from drivetrain.core.job.run_progress import FragmentProgressed, RunOutcome
from drivetrain.terminal import Console

WELL = ChannelProgress("a--b", "a", "b", clock_ms=0, kept_bytes=999)
ILL = ChannelProgress(
    "a--b",
    "a",
    "b",
    clock_ms=0,
    lag_rows=1_234,
    lag_bytes=12_345_678,
    lag_ms=4_000,
    unacknowledged_rows=5_000,
    window_rows=5_000,
    blocked_ms=3_000,
    losses=1,
    replays=2,
)


def progressed(**figures: object) -> FragmentProgressed:
    return FragmentProgressed("b", 0, 1, 1.0, 10, **figures)  # type: ignore[arg-type]


def printed(*channels: ChannelProgress, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(channels_of([progressed(channels=channels)], width))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_nothing_is_said_while_all_goes_well() -> None:
    assert attention(progressed(channels=(WELL,), watermark_delay_ms=2_000)) == []
    assert channels_of([progressed()], 200) is None


def test_attention_says_what_waits_and_what_was_lost() -> None:
    figures = progressed(channels=(ILL, WELL), stalled_ms=90_000, waiting_for="a", blocked_by="c")
    assert attention(figures) == [
        "from a: 1,234 messages (12.3 MB) wait, 4.0 s behind, window full for 3.0 s, 1 loss, 2 replays",
    ]


def test_a_wide_terminal_gets_a_table_a_narrow_one_a_sentence_with_the_same_figures() -> None:
    wide, narrow = printed(ILL, WELL, width=WIDE), " ".join(printed(ILL, WELL, width=80).split())
    assert "─" in wide
    assert max(map(len, wide.splitlines())) <= WIDE
    for figure in (
        "a → b",
        "1,234",
        "12.3 MB",
        "4.0 s",
        "5,000 of 5,000",
        "3.0 s",
        "1970-01-01 00:00:00",
        "999 B",
    ):
        assert figure in wide
        assert figure in narrow


def test_json_has_every_field_by_its_name() -> None:
    data = json.loads(json.dumps(as_data({"f": progressed(channels=(ILL,)), "how": RunOutcome.STOPPED})))
    assert data["how"] == "stopped"
    assert data["f"]["watermark_delay_ms"] is None
    assert data["f"]["channels"][0]["lag_bytes"] == 12_345_678
    assert set(data["f"]["channels"][0]) == set(ChannelProgress.__struct_fields__)


def test_sizes_and_delays_are_readable() -> None:
    assert [show_size(n) for n in (0, 999, 1_000, 12_345_678, 3_000_000_000_000)] == [
        "0 B",
        "999 B",
        "1 kB",
        "12.3 MB",
        "3 TB",
    ]
    assert [show_delay(progressed(watermark_delay_ms=ms)) for ms in (None, 0, 2_000)] == [
        "–",
        "0 ms",
        "2.0 s",
    ]
