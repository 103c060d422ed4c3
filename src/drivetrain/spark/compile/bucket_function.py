"""The function of a stateful operator that Spark calls for each bucket of keys; its errors name the operator.

Called by `as_of`, `deduplication`, `keyed_tasks`, `pattern_matching` and `persistent_buckets`, whose
functions extend it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from drivetrain.errors import DrivetrainError
from drivetrain.spark.session.spark_errors import embedded

if TYPE_CHECKING:
    import pandas as pd


class BucketFunction(ABC):
    """The function of the operator that `operator` describes; Spark calls it with a bucket and its state."""

    operator: str

    def __call__(self, key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        """Yield one row of packed results, if there are any."""
        try:
            yield from self._rows(int(key[0]), frames, state)
        except DrivetrainError as error:
            error.where = error.where or self.operator
            raise embedded(error) from error

    @abstractmethod
    def _rows(self, bucket: int, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        """The rows of a bucket; `frames` are its new messages, packed."""
