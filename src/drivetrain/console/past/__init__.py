"""The figures of applications over the last weeks, in a file of the console."""
