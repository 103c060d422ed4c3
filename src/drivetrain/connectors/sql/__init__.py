"""SQLite, PostgreSQL, MySQL and MariaDB as sinks."""
