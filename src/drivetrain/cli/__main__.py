"""Makes `python -m drivetrain.cli` the command line, for when `drivetrain` is not on the PATH."""

from drivetrain.cli.main import main

if __name__ == "__main__":
    main()
