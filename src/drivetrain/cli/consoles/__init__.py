"""Commands for the console: to serve it, and to manage its users."""
