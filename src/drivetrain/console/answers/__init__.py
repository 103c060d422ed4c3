"""The answers of the console: structs with named fields, which are the JSON that clients read.

The names never change. A moment is in ms since 1970 in UTC, a duration in ms; both end in `_ms`, and the
docstring of each struct states which. Sizes end in `_bytes`, rates in `_per_s`. Unknown values are null.
"""
