"""The files of a channel: its log of entries, its segments, and where its subscribers are."""
