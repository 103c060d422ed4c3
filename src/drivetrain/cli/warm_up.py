"""`drivetrain warm-up`: makes Spark start faster on this machine.

Called by `cli.main`. The work is done in `spark.session.class_archive`.
"""

from __future__ import annotations

import json
import sys
import time

from drivetrain.cli.arguments import JsonOption
from drivetrain.terminal import print_line


def warm_up_command(as_json: JsonOption = False) -> None:
    """Make Spark start in about half the time: keep its Java classes as Java has them in memory.

    Takes half a minute to a minute and 170 MB of the user's cache, once for every version of Java and Spark.
    """
    from drivetrain.spark.session import class_archive

    if not as_json:
        print_line("running a small application, and keeping the classes that it loads …", file=sys.stderr)
    began_s = time.monotonic()
    path = class_archive.make()
    size_bytes = path.stat().st_size
    if as_json:
        print_line(json.dumps({"archive": str(path), "bytes": size_bytes}))
    else:
        print_line(f"{path}: {size_bytes / 2**20:.0f} MiB, in {time.monotonic() - began_s:.0f} s")
        print_line("every session on this machine uses it from now on; delete the file to be without it")
