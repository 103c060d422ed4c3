"""The console that `drivetrain run --console` starts beside a run.

Problem: a user who tries an application wants to watch it, without setting up a cluster, and without slowing
the run down.

Design: a process of its own, `drivetrain console --state-dir`, which asks the run through its control socket
like any other process. The run does not wait for it: a thread prints the address once the console listens, or
why it has ended. The console ends with the command; before that it looks once more, so that open pages show
the end of the run. It is tied to this process and ends when this one is killed (`cluster.parent`). It is in a
session of its own: Ctrl-C stops the run, not the console.

Called by `cli.running.run`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from drivetrain.cli.arguments import load_config
from drivetrain.cli.consoles.console import TOKEN_VARIABLE
from drivetrain.cli.consoles.console_port import HOST, free_port, listens
from drivetrain.cluster.parent import PARENT_VARIABLE
from drivetrain.config import find_key
from drivetrain.config.catalog import console as keys
from drivetrain.console.addresses import ConsoleAddress, address_of
from drivetrain.console.requirements import require_packages
from drivetrain.private_files import make_private_directory, private
from drivetrain.runtime.state_place import state_home
from drivetrain.terminal import print_line

LOG: Final = "run-console.log"
_LOOK_S: Final = 0.1
_END_S: Final = 15.0
_SHOWN: Final = 2_000


@contextlib.contextmanager
def console_beside(sets: Mapping[str, str], config_file: Path | None) -> Iterator[None]:
    """Run a console for the runs of this configuration within the block, and print its address.

    Raises MissingDependencyError without the packages of the console, UserError when there is no free port.
    """
    require_packages()
    config = load_config(config_file, sets)
    directory = Path(config[keys.DIRECTORY])
    make_private_directory(directory, "the directory of the console")
    port, token = free_port(config[keys.PORT]), secrets.token_urlsafe(24)
    arguments = [sys.executable, "-m", "drivetrain.cli", "console", "--state-dir", state_home(config)]
    if config_file is not None:
        arguments += ["--config", str(config_file)]
    own = {name: value for name, value in sets.items() if find_key(name) is not None}
    for name, value in {**own, keys.HOST.name: HOST, keys.PORT.name: str(port)}.items():
        arguments += ["--set", f"{name}={value}"]
    with open(directory / LOG, "wb", opener=private) as log:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, TOKEN_VARIABLE: token, PARENT_VARIABLE: str(os.getpid())},
        )
    ending = threading.Event()
    address = ConsoleAddress(address_of(config, HOST, port), token)
    telling = threading.Thread(
        target=_tell, args=(process, address, directory / LOG, ending), name="console", daemon=True
    )
    telling.start()
    try:
        yield
    finally:
        ending.set()
        _end(process)
        telling.join()


def _tell(
    process: subprocess.Popen[bytes], address: ConsoleAddress, log: Path, ending: threading.Event
) -> None:
    """Print the address once the console listens, or the end of its log if it ends before the run does."""
    while process.poll() is None and not listens(address):
        if ending.wait(_LOOK_S):
            return
    if process.poll() is None:
        print_line(f"console: {address.entry}", file=sys.stderr, flush=True)
    while not ending.wait(_LOOK_S):
        if process.poll() is not None:
            wrote = log.read_bytes()[-_SHOWN:].decode(errors="replace").strip()
            print_line(
                f"the console has ended, the run continues; it wrote\n{wrote}", file=sys.stderr, flush=True
            )
            return


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdin is not None
    process.stdin.close()
