"""The names of the columns that channels add to a message.

Problem: writer, reader and clock must agree on names that no user's column may take.

Invariants:

1. Names that start with two underscores are Drivetrain's.
2. Every column of a channel's stream may be null, because a punctuation has no data.

Called by: every module that writes or reads channels. The schema of a channel's stream is in
`spark.channel.source`.
"""

from __future__ import annotations

TS = "__ts"
"""The event time of a message."""
WM = "__wm"
"""The column that drives Spark's watermark: the clock in punctuation rows."""
PUNCT = "__punct"
"""True in punctuation rows."""
BAD = "__bad"
"""A message that could not be read or processed (`BAD_TYPE`); null in other rows."""
BAD_TYPE = "struct<raw:string,file:string,line:bigint,error:string>"
PART = "__part"
"""The number (int, from 0) of a message's source partition; dropped once the event time is set."""
