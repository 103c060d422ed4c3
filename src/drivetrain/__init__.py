"""Drivetrain: streaming applications on Apache Spark, in Python.

Import what an application needs from here; see `drivetrain.api` for the whole surface.
"""

__version__ = "0.1.0"
