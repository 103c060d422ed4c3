"""The pure protocol cores: state machines without I/O, clocks or threads."""
