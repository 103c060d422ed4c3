"""Lets `python -m drivetrain.cli` be the command line, where the `drivetrain` program is not on the PATH."""

from drivetrain.cli.main import main

if __name__ == "__main__":
    main()
