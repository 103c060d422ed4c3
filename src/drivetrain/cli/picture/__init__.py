"""The pictures of a plan and of a difference, as SVG."""

from drivetrain.cli.picture.compared_drawing import draw_compared
from drivetrain.cli.picture.drawing import draw

__all__ = ["draw", "draw_compared"]
