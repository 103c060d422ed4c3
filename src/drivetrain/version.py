"""The version of this package, for processes that compare theirs."""

VERSION = "0.1.0"
