"""Shells of the control plane: master, worker, application master, executor, client."""
