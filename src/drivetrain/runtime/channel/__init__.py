"""The files of a channel: its log of entries, its segments, and the positions of its subscribers."""
