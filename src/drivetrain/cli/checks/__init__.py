"""Commands that examine this machine and prepare it: `doctor` and `warm-up`."""
