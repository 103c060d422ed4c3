"""`drivetrain warm-up`: makes Spark start faster on this machine.

Called by `cli.main`; the work is in `spark.class_archive`.
"""

from __future__ import annotations

import json
import sys
import time

from drivetrain.cli.arguments import JsonOption


def warm_up_command(as_json: JsonOption = False) -> None:
    """Make Spark start in about half the time: keep its Java classes as Java has them in memory.

    Takes half a minute to a minute and 170 MB of the user's cache, once for every version of Java and Spark.
    """
    from drivetrain.spark import class_archive

    if not as_json:
        print("running a small application, and keeping the classes that it loads …", file=sys.stderr)
    began_s = time.monotonic()
    path = class_archive.make()
    size_bytes = path.stat().st_size
    if as_json:
        print(json.dumps({"archive": str(path), "bytes": size_bytes}))
    else:
        print(f"{path}: {size_bytes / 2**20:.0f} MiB, in {time.monotonic() - began_s:.0f} s")
        print("every session on this machine uses it from now on; delete the file to be without it")
