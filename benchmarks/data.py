"""The data of the benchmarks: the same bytes for every contender, made once, with the answers beside them.

Made with numpy and Arrow from a fixed seed, so that a figure can be taken again elsewhere. What the right
result is follows from the random draws themselves, not from any of the contenders.

- *text*: lines of 12 words, the words drawn by Zipf's law from a vocabulary of 50,000; files of about 25 MB.
- *events*: JSON lines `{"ts": …, "key": …, "value": …}`, or the same as CSV or Parquet; 5,000 per second
  of event time, 1,000 keys, in the order of arrival: each up to 5 s after the moment it tells of; files of
  500,000 events.

Both live below `.bench-data/`, one directory per size, written under another name and then renamed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

EventFiles = Literal["json", "csv", "parquet"]

SEED = 20130101
VOCABULARY = 50_000
WORDS_PER_LINE = 12
TEXT_FILE_BYTES = 25_000_000

KEYS = 1_000
EVENTS_PER_S = 5_000
EVENTS_PER_FILE = 500_000
DISORDER_MS = 5_000
WINDOW_MS = 10_000
START_MS = 1_704_067_200_000  # 2024-01-01 UTC

EVENT_SCHEMA = "ts timestamp, key string, value bigint"


def root() -> Path:
    """Where benchmark data is kept: `BENCH_DATA`, or `.bench-data` in the current directory."""
    return Path(os.environ.get("BENCH_DATA", ".bench-data")).absolute()


def text(megabytes: int) -> Path:
    """The directory with `lines/*.txt` of about that size, and `expected.parquet` (word, count)."""
    return made(f"text-{megabytes}mb", lambda directory: _write_text(directory, megabytes * 1_000_000))


def events(count: int, kind: EventFiles = "json") -> Path:
    """The directory of `lines/` with files of `count` events, and `expected.parquet`."""
    if kind == "json":
        return made(f"events-{count}", lambda directory: _write_events(directory, count))
    return made(f"events-{count}-{kind}", lambda directory: _convert_events(directory, events(count), kind))


def read_files(*places: Path) -> None:
    """Read files, or all files below directories, once: or the first contender alone waits for the disk."""
    for place in places:
        for path in [place] if place.is_file() else place.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    while file.read(2**20):
                        pass


def size_bytes(directory: Path) -> int:
    """How large the input files of a data set are."""
    return sum(file.stat().st_size for file in (directory / "lines").iterdir())


def total(directory: Path, column: str) -> int:
    """The sum of a column of the expected result: how many words or events there are."""
    return int(pc.sum(pq.read_table(directory / "expected.parquet", columns=[column])[column]).as_py())


# -- text --------------------------------------------------------------------------------------------


def vocabulary(size: int = VOCABULARY) -> pa.Array:
    """Distinct words of lower-case letters, the short ones first, as the frequent words of a language are."""
    rng = np.random.default_rng(SEED)
    lengths = np.clip((2.2 + 0.9 * np.log10(np.arange(1, size + 1)) ** 1.4).round().astype(int), 2, 12)
    words: dict[str, None] = {}
    for length in lengths:
        while True:
            word = bytes(rng.integers(97, 123, length, dtype=np.uint8)).decode()
            if word not in words:
                words[word] = None
                break
            length += 1  # the short ones are used up: a longer one is new
    return pa.array(list(words), pa.string())


def text_lines(words: pa.Array, lines: int, rng: np.random.Generator) -> tuple[pa.Array, np.ndarray]:
    """Lines of text, and how often each word of the vocabulary is in them."""
    weights = 1.0 / np.arange(1, len(words) + 1)
    reaching = np.cumsum(weights / weights.sum())
    drawn = np.minimum(np.searchsorted(reaching, rng.random(lines * WORDS_PER_LINE)), len(words) - 1)
    offsets = pa.array(np.arange(0, len(drawn) + 1, WORDS_PER_LINE, dtype=np.int32))
    grouped = pa.ListArray.from_arrays(offsets, words.take(pa.array(drawn)))
    return pc.binary_join(grouped, " "), np.bincount(drawn, minlength=len(words))


def _write_text(directory: Path, size_bytes: int) -> None:
    rng = np.random.default_rng(SEED + 1)
    words = vocabulary()
    counts = np.zeros(len(words), np.int64)
    files = max(2, round(size_bytes / TEXT_FILE_BYTES))
    written = 0
    for n in range(files):
        with (directory / "lines" / f"part-{n:03}.txt").open("wb") as file:
            until = size_bytes * (n + 1) // files
            while written < until:
                lines = min(50_000, max(1, (until - written) // 60))
                chunk, counted = text_lines(words, lines, rng)
                counts += counted
                written += file.write(_joined(chunk))
    there = counts > 0
    _write_expected(
        directory, pa.table({"word": words.filter(pa.array(there)), "count": pa.array(counts[there])})
    )


# -- events ------------------------------------------------------------------------------------------


def event_lines(first: int, count: int, rng: np.random.Generator) -> tuple[pa.Array, pa.Table]:
    """JSON lines of the events from number `first` on, as they arrive, and (start_ms, key, value) of each."""
    arrival_ms = START_MS + np.arange(first, first + count, dtype=np.int64) * 1000 // EVENTS_PER_S
    ts_ms = np.maximum(arrival_ms - rng.integers(0, DISORDER_MS, count), START_MS)
    keys = pc.binary_join_element_wise(
        "k", pc.utf8_lpad(pa.array(rng.integers(0, KEYS, count)).cast(pa.string()), 4, "0"), ""
    )
    values = pa.array(rng.integers(0, 10_000, count))
    start_ms = pa.array(ts_ms - ts_ms % WINDOW_MS)
    return json_lines(ts_ms, keys, values), pa.table({"start_ms": start_ms, "key": keys, "value": values})


def json_lines(ts_ms: np.ndarray, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Events as JSON lines, in this order."""
    stamps = pc.replace_substring(pa.array(ts_ms).cast(pa.timestamp("ms")).cast(pa.string()), " ", "T")
    return pc.binary_join_element_wise(
        '{"ts":"', stamps, 'Z","key":"', keys, '","value":', values.cast(pa.string()), "}", ""
    )


def _write_events(directory: Path, count: int) -> None:
    rng = np.random.default_rng(SEED + 2)
    parts: list[pa.Table] = []
    per_file = min(EVENTS_PER_FILE, max(1, count // 2))
    for n, first in enumerate(range(0, count, per_file)):
        lines, facts = event_lines(first, min(per_file, count - first), rng)
        (directory / "lines" / f"part-{n:03}.jsonl").write_bytes(_joined(lines))
        parts.append(_per_window(facts))
    whole = pa.concat_tables(parts).group_by(["start_ms", "key"]).aggregate([("n", "sum"), ("total", "sum")])
    _write_expected(directory, whole.rename_columns(["start_ms", "key", "n", "total"]))


def _convert_events(directory: Path, from_json: Path, kind: EventFiles) -> None:
    for file in sorted((from_json / "lines").iterdir()):
        table = pa_json.read_json(file)
        table = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us", "UTC")))
        target = directory / "lines" / f"{file.stem}.{kind}"
        if kind == "parquet":
            pq.write_table(table, target)
        else:
            stamps = pc.strftime(table["ts"].cast(pa.timestamp("ms", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
            options = pa_csv.WriteOptions(quoting_style="needed")
            pa_csv.write_csv(table.set_column(0, "ts", stamps), target, options)
    shutil.copy(from_json / "expected.parquet", directory)


def _per_window(facts: pa.Table) -> pa.Table:
    grouped = facts.group_by(["start_ms", "key"]).aggregate([("value", "count"), ("value", "sum")])
    return grouped.rename_columns(["start_ms", "key", "n", "total"])


# -- files -------------------------------------------------------------------------------------------


def chunks(items: pa.Array, size: int) -> Iterator[bytes]:
    """The lines in pieces of `size` lines, as the content of files."""
    for at in range(0, len(items), size):
        yield _joined(items.slice(at, size))


def _joined(lines: pa.Array) -> bytes:
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return pc.binary_join(whole, "\n")[0].as_buffer().to_pybytes() + b"\n"


def _write_expected(directory: Path, table: pa.Table) -> None:
    pq.write_table(table, directory / "expected.parquet")


def made(name: str, write: Callable[[Path], None]) -> Path:
    """The directory of a data set, made by `write` the first time."""
    directory = root() / name
    if not directory.is_dir():
        unfinished = directory.with_name(f".{name}.{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        (unfinished / "lines").mkdir(parents=True)
        write(unfinished)
        unfinished.rename(directory)
    return directory
