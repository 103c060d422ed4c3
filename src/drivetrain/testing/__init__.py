"""The deterministic simulator and other tools for testing, shipped to users."""
