"""Starts servers of tests so that they end with the process that started them, however that ends.

The kernel ends them: a small program requests that, and then becomes the server. A `preexec_fn` could request
it, too, but Python then runs in the forked child, where it disposes of the other threads' connections to
Spark's Java process: it shuts down sockets that the parent shares, and a call that waits for its answer
fails.
"""

from __future__ import annotations

DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
"""What precedes a server's command (util-linux, which Debian always has)."""
