"""The command that makes a new project."""
