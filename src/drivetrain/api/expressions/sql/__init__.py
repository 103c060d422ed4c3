"""SQL text in an application: checked against Spark's own grammar while the application is built."""

from drivetrain.api.expressions.sql.check import require_expression

__all__ = ["require_expression"]
