"""Spark's GroupState of one bucket, for functions that keep state in it."""

from __future__ import annotations

from drivetrain.spark.channel.watermark import watermark_of


class FakeGroup:
    """Stands for Spark's GroupState of a bucket."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None
        self.clock_ms = 0
        self.timeout_ms: int | None = None
        self.hasTimedOut = False

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple[bytes]:
        assert self.value is not None
        return self.value

    def update(self, value: tuple[bytes]) -> None:
        self.value = value

    def remove(self) -> None:
        self.value = None

    def getCurrentWatermarkMs(self) -> int:
        return watermark_of(self.clock_ms)

    def setTimeoutTimestamp(self, ms: int) -> None:
        assert ms > watermark_of(self.clock_ms)
        self.timeout_ms = ms
