"""The applications of the leading master."""
