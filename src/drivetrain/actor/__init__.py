"""Actor systems: references, supervision, asks, watches and their transports."""
