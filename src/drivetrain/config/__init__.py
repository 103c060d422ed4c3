"""Configuration: typed keys with units, from a TOML file, the environment and --set."""
