"""The application master of streaming applications."""
