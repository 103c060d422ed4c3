"""Flow control and loss detection between the two ends of a channel."""
