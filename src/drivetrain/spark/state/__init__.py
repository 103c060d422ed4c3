"""The state of an application, for queries by users."""
