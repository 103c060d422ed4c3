"""Starts Spark's Java process: at once, before PySpark is imported, and without Spark's start scripts.

Problem: PySpark starts Java by shell scripts, which start a Python and a first Java to find out the command
of the second. That runs SparkSubmit, which looks for jars and files of settings before it does anything
else; and all of it begins only when PySpark has been imported.

Design: a session on this machine, whose settings need nothing of the scripts and of SparkSubmit, is started
by the command that they would find out, with the class that SparkSubmit would call. `begin` starts it, and
the process continues with its own imports; `gateway` connects PySpark to it, or to another one if the command
or the environment has changed meanwhile. For all other sessions `direct_command` returns None, and PySpark
starts Java as it always does.

The jars of Kafka's connector are on the class path if they are in the cache, as it is not known at this time
whether the application uses them; they come last, so an archive of classes fits either way.

Invariants:

1. Java ends with this process, whatever happens to it: it waits on a pipe that only this process holds.
2. At most one Java process that was begun here lives and is not connected.
3. No setting is on the command line, except those that Java itself needs.

Called by `spark_session`, by `drivetrain run`, and by executors. Source: Spark's JavaModuleOptions,
SparkSubmitCommandBuilder and PythonGatewayServer, and PySpark's java_gateway.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain.config import Config
from drivetrain.config.catalog import spark as keys
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.spark.session.installed_spark import spark_folder
from drivetrain.spark.session.java import java_program
from drivetrain.spark.session.kafka_connector import connector_jars
from drivetrain.spark.session.python_launcher import IGNORING_CTRL_C, worker_python
from drivetrain.spark.session.spark_settings import settings

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

_SERVER: Final = "org.apache.spark.api.python.PythonGatewayServer"
_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_SPARKS_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""The options that the scripts of Spark 4.3 give to Java; a test compares."""

_HARMLESS: Final = {
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_LOCAL_HOSTNAME",
    "SPARK_LOCAL_IP",
    "SPARK_PUBLIC_DNS",
    "SPARK_USER",
}
"""Spark's variables that only Spark itself reads; the scripts read others."""
_OF_SCRIPTS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
_OF_SUBMIT: Final = (
    "spark.api.mode",
    "spark.archives",
    "spark.driver.default",
    "spark.driver.extra",
    "spark.driver.memory",
    "spark.driver.userClassPathFirst",
    "spark.files",
    "spark.jars",
    "spark.kerberos.",
    "spark.kubernetes.",
    "spark.launcher.",
    "spark.pyspark.",
    "spark.remote",
    "spark.submit.",
    "spark.yarn.",
)
"""Beginnings of the settings of users that the scripts or SparkSubmit act on."""

_LOOK_S: Final = 0.01
_PORT: Final = struct.Struct("!ii")


@dataclass(frozen=True)
class _Begun:
    """A Java process that was begun: what it was started with, and the file in which it writes its port."""

    command: tuple[str, ...]
    environment: dict[str, str]
    directory: str
    process: subprocess.Popen[bytes]
    port_file: Path


_begun: _Begun | None = None
_is_direct = False


def is_direct() -> bool:
    """Whether this process's Java was started here: then Kafka's connector is on its class path."""
    return _is_direct


def direct_command(config: Config) -> tuple[str, ...] | None:
    """The command that starts Java for this configuration; None if Spark's scripts have to do it."""
    java, home, chosen = java_program(), spark_folder(), settings(config)
    if java is None or not os.path.exists(java) or not _needs_no_scripts(config, home):
        return None
    own_path = chosen.get("spark.driver.extraClassPath")
    class_path = [] if own_path is None else [own_path]
    # In this order, which an archive of classes must have had as well.
    class_path += [str(home / "conf"), *map(str, sorted(home.glob("jars/slf4j-api-*.jar"))), f"{home}/jars/*"]
    jars = _connector_at_hand(config)
    if any(os.pathsep in str(path) for path in (home, *jars)):
        return None
    return (
        java,
        "-cp",
        os.pathsep.join([*class_path, *map(str, jars)]),
        f"-Xmx{chosen['spark.driver.memory']}",
        *chosen["spark.driver.extraJavaOptions"].split(),
        *_SPARKS_OPTIONS,
        _SERVER,
    )


def _needs_no_scripts(config: Config, home: Path) -> bool:
    """Whether neither the scripts nor SparkSubmit would find anything to act on."""
    own: Mapping[str, str] = config[keys.CONF]
    spark = {name for name in os.environ if name.startswith("SPARK_")} - _HARMLESS
    if os.environ.get("SPARK_HOME") == str(home):
        spark.discard("SPARK_HOME")
    return (
        config[keys.MASTER].startswith("local")
        and os.access("/bin/sh", os.X_OK)
        and not (home / "conf").exists()
        and not spark
        and not any(name in os.environ for name in _OF_SCRIPTS)
        and not any(name.startswith(_OF_SUBMIT) for name in own)
    )


def _connector_at_hand(config: Config) -> list[Path]:
    try:
        return connector_jars(config, fetch=False) or []
    except DrivetrainError:
        return []  # an application that needs it gets this error when it asks for the connector


def begin(config: Config) -> None:
    """Start Java for a session with this configuration, if that is possible without Spark's scripts."""
    global _begun
    if _begun is None and (command := direct_command(config)) is not None:
        choose_forks()
        with contextlib.suppress(OSError):  # the session tries again, and reports it
            _begun = _started(command)


def choose_forks() -> None:
    """Have Spark's Python processes on this machine forked; Java reads the choice when it starts."""
    # Spark looks for installed data sources with the driver's Python, but in a separate process.
    os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["PYSPARK_PYTHON"] = worker_python()


def _started(command: tuple[str, ...]) -> _Begun:
    environment, directory = dict(os.environ), os.getcwd()
    port_file = Path(tempfile.mkdtemp(prefix="drivetrain-java-")) / "port"
    process = subprocess.Popen(
        [*IGNORING_CTRL_C, *command],
        stdin=subprocess.PIPE,
        env={
            **environment,
            "PYTHONHASHSEED": "0",
            "SPARK_CONNECT_MODE": "0",
            "SPARK_HOME": str(spark_folder()),
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(port_file),
        },
    )
    begun = _Begun(command, environment, directory, process, port_file)
    atexit.register(_end, begun)
    return begun


def _end(begun: _Begun) -> None:
    """End a Java process that was begun for nothing."""
    shutil.rmtree(begun.port_file.parent, ignore_errors=True)
    if begun is _begun:
        begun.process.kill()
        begun.process.wait()


def gateway(command: tuple[str, ...]) -> JavaGateway:
    """PySpark's connection to the Java process of that command, started now unless it was begun.

    Raises `UnavailableError` when Java ends before it can be reached.
    """
    from pyspark.java_gateway import launch_gateway

    global _begun, _is_direct
    begun = _begun
    if begun is not None and not _is_current(begun, command):
        _end(begun)
        begun = None
    begun = begun or _started(command)
    _begun = begun  # until it is connected, so that it ends if that fails
    try:
        port, secret = _wait_port(begun)
    finally:
        shutil.rmtree(begun.port_file.parent, ignore_errors=True)
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
    try:
        connected: JavaGateway = launch_gateway()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    connected.proc = begun.process
    _begun, _is_direct = None, True
    return connected


def _is_current(begun: _Begun, command: tuple[str, ...]) -> bool:
    """Whether it is what would be started now; an application's file may have set variables meanwhile."""
    now = (command, dict(os.environ), os.getcwd())
    return (begun.command, begun.environment, begun.directory) == now


def _wait_port(begun: _Begun) -> tuple[int, str]:
    """Wait until Java has written its port and the secret of its connections."""
    while not begun.port_file.exists():
        status = begun.process.poll()
        if status is not None:
            raise UnavailableError("Spark's Java process ended while it started", got=f"exit status {status}")
        time.sleep(_LOOK_S)
    content = begun.port_file.read_bytes()  # complete: it gets this name by a rename
    port, length = _PORT.unpack_from(content)
    return port, content[_PORT.size : _PORT.size + length].decode()
