"""SQLite and PostgreSQL as sinks."""
