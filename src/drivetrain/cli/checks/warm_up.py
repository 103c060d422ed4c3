"""`drivetrain warm-up`: makes Spark start faster on this machine.

Called by `cli.main`. The work is done in `spark.session.local_files` and `spark.session.class_archive`.
"""

from __future__ import annotations

import json
import sys
import time

from drivetrain.cli.arguments import JsonOption
from drivetrain.terminal import print_line


def warm_up_command(as_json: JsonOption = False) -> None:
    """Make Spark start in half the time and write checkpoints with less CPU time.

    Stores Spark's Java classes in the form that Java loads fastest, and compiles classes that write local
    files without starting a process for each, and the messages of channels. Takes half a minute to a minute
    and 170 MB of the user's cache, once for every version of Java, Spark and Drivetrain.
    """
    from drivetrain.spark.session import class_archive, local_files

    if not as_json:
        print_line("compiling classes that write local files …", file=sys.stderr)
    began_s = time.monotonic()
    earlier = local_files.usable_jar()
    jar = local_files.make_jar()
    if not as_json:
        print_line("running a small application, and keeping the classes that it loads …", file=sys.stderr)
    try:
        path = class_archive.make()
    except BaseException:
        if earlier is None:
            jar.unlink()  # or sessions would look for an archive that fits it, and leave an older one unused
        raise
    size_bytes = path.stat().st_size
    if as_json:
        print_line(json.dumps({"archive": str(path), "bytes": size_bytes, "local_files": str(jar)}))
    else:
        print_line(f"{path}: {size_bytes / 2**20:.0f} MiB, in {time.monotonic() - began_s:.0f} s")
        print_line(f"{jar}: {jar.stat().st_size / 2**10:.0f} KiB")
        print_line("every session on this machine uses both from now on; delete the files to be without them")
