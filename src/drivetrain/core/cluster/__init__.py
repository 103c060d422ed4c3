"""What the masters agree on: election, registry, applications, slots."""
