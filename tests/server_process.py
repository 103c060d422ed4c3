"""Starts servers of tests so that they end with the process that started them, whatever ends that.

The kernel does it: a program that asks for it is put before the server's. A `preexec_fn` could ask, too, but
Python then runs in the forked child, where it disposes of the other threads' connections to Spark's Java
process: it shuts down sockets that the parent shares, and a call that waits for its answer fails.
"""

from __future__ import annotations

DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
"""What precedes a server's command (util-linux, which Debian always has)."""
