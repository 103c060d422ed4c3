"""The files of checkpoints and savepoints, and the actor that coordinates checkpoints."""
