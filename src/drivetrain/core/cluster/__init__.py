"""The protocols of the masters: election, registry, applications, slots."""
