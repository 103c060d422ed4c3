"""The picture of a plan, as SVG."""

from drivetrain.cli.picture.drawing import draw

__all__ = ["draw"]
