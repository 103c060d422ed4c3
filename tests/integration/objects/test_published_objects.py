"""Readers of an application's outputs in an object store, while it publishes."""

from __future__ import annotations

import threading

from drivetrain.connectors.files.publication_manifest import Manifest, Published, PublishedSink
from object_store import S3Server

READS = 300


def test_a_manifest_is_read_whole_while_it_becomes_longer_and_shorter(s3: S3Server) -> None:
    s3.bucket("published")
    places = ("s3://published/out", "app", s3.settings())
    written, ends = Manifest(*places), threading.Event()
    contents = [
        Published(1, {f"sink-{n}": PublishedSink("out", 7) for n in range(count)}) for count in (1, 40, 2)
    ]
    written.replace(contents[0])

    def write() -> None:
        while not ends.is_set():
            for content in contents:
                written.replace(content)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [Manifest(*places).read() for _ in range(READS)]
    finally:
        ends.set()
        writer.join()
    assert all(content in contents for content in found)
    assert len({len(content.sinks) for content in found}) > 1, "it was not replaced meanwhile"
