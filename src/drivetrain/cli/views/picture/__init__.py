"""The pictures of a plan and of a difference, as SVG."""

from drivetrain.cli.views.picture.compared_drawing import draw_compared
from drivetrain.cli.views.picture.drawing import draw

__all__ = ["draw", "draw_compared"]
