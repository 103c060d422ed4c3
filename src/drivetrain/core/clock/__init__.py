"""Event-time clocks."""
