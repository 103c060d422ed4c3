"""How commands show channels, checkpoints, figures, a run and a graph."""
