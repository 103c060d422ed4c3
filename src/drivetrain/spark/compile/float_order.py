"""Floats as whole numbers in Spark's order, in which NaN is larger than any other number.

Problem: Arrow's max ignores NaN, as its min does; Spark's max of a column with NaN is NaN, and its min is
the smallest number.

Design: the bits of a float, read as a whole number, are in the order of the floats if those of negative ones
are inverted. All NaNs become one, whose bits are above those of infinity.

Called by `persistent_packs`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_WHOLE = {pa.float32(): (np.int32, pa.int32()), pa.float64(): (np.int64, pa.int64())}


def as_ordered(floats: pa.Array) -> pa.Array:
    """The whole numbers of floats of 32 or 64 bits; null stays null."""
    kind, whole = _WHOLE[floats.type]
    filled = pc.fill_null(floats, 0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(filled), np.array(np.nan, filled.dtype), filled).view(kind)
    return pa.array(_inverted(bits), whole, mask=floats.is_null().to_numpy(zero_copy_only=False))


def as_floats(ordered: pa.Array) -> pa.Array:
    """The floats for the result of `as_ordered`."""
    floats, (kind, _) = next((one, two) for one, two in _WHOLE.items() if two[1] == ordered.type)
    bits = pc.fill_null(ordered, 0).to_numpy(zero_copy_only=False).astype(kind)
    values = _inverted(bits).view(floats.to_pandas_dtype())
    return pa.array(values, floats, mask=ordered.is_null().to_numpy(zero_copy_only=False), from_pandas=False)


def _inverted(bits: np.ndarray) -> np.ndarray:
    """The bits of negative numbers inverted, except for the sign; its own inverse."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
