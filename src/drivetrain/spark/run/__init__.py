"""Runs an application in this process, from start to end."""
