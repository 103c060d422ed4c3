"""Drivetrain's own Java classes, which write local files (Hadoop's, segments, Parquet) or look after plans.

Problem: Hadoop sets the permissions of each file that it makes by starting `chmod`, unless its native library
is installed, which no Python package brings. Spark makes two files (one is a checksum) for each entry of a
checkpoint, so a small application starts some 180 processes: about a tenth of its CPU time. And handing the
messages of a channel, or results for a Parquet file, to Python, which writes them, takes longer than writing
them. And Spark copies a message into each of its sliding windows before it is counted, reads a join's state
after each batch for what it need not keep, and compiles the regular expression of a `split` for each row,
which no other query can avoid.

Design: the Java class `DirectLocalFileSystem` overrides the one method that starts the process;
`spark.measure.java_files` uses another; `AggregateBeforeWindows`, `ForgetJoinedLater` (see
`spark.compile.sliding` and `spark.compile.windowed`) and `SplitAtCharacters` are extensions of Spark's
planner, and `spark.batch.direct_batches` uses `DirectBatch`. `drivetrain warm-up` compiles them, with the
compiler that Spark itself brings, into a jar in the user's cache. Sessions with a local master use the jar if
it exists; on a Spark cluster, whose executors do not have it, Hadoop's own file system stays, Python writes
segments and parts, and plans stay as they are.

Invariants:

1. Nobody sees a half-written jar: it gets its name by a rename.
2. A jar that other users could have written is not used: it is code.
3. Without a jar everything works as before.
4. A correct jar is not written again: an archive of Java's classes (`class_archive`) fits one file with
   one modification time, and several environments of a user share one jar.

Called by `spark_session`, `class_archive` and `drivetrain warm-up`. Source: `RawLocalFileSystem` of Hadoop 3.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain.durable import publish, sync
from drivetrain.errors import UnavailableError
from drivetrain.runtime.user_cache import cache_directory
from drivetrain.spark.session.cache_directory import is_usable, make_cache_directory
from drivetrain.spark.session.installed_spark import spark_version
from drivetrain.spark.session.java import QUIET

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

LOG_SETTINGS: Final = Path(__file__).resolve().with_name("log4j2.properties")
"""Errors only, for every Java process that is started here."""
_SOURCES: Final = Path(__file__).with_name("java")
_CLASS: Final = "drivetrain.DirectLocalFileSystem"
_CLASS_PATH: Final = "spark.driver.extraClassPath"
_FILE_SYSTEM: Final = "spark.hadoop.fs.file.impl"
_EXTENSIONS: Final = "spark.sql.extensions"
_RULES: Final = ",".join(
    f"drivetrain.{rule}" for rule in ("AggregateBeforeWindows", "ForgetJoinedLater", "SplitAtCharacters")
)


def jar_path() -> Path:
    """Where the jar for this source and this Spark is, whether it exists or not."""
    digest = hashlib.sha256(spark_version().encode())
    for source in _sources():
        digest.update(source.read_bytes())
    return cache_directory() / f"local-files-{digest.hexdigest()[:12]}.jar"


def usable_jar() -> Path | None:
    """The jar, if it exists and only this user can write to it."""
    path = jar_path()
    return path if ":" not in str(path) and is_usable(path) else None


def spark_settings(master: str, own: Mapping[str, str]) -> dict[str, str]:
    """The settings that make Spark use the jar, given the user's settings; empty if it cannot."""
    path = usable_jar() if master.startswith("local") and _FILE_SYSTEM not in own else None
    if path is None:
        return {}
    return {
        _CLASS_PATH: ":".join(filter(None, [str(path), own.get(_CLASS_PATH)])),
        _FILE_SYSTEM: _CLASS,
        _EXTENSIONS: ",".join(filter(None, [own.get(_EXTENSIONS), _RULES])),
    }


def make_jar() -> Path:
    """Compile the classes, in a few seconds; the path of the jar, which stays if it has these classes.

    Raises `UnavailableError` with the compiler's output, and `OutputError` when the cache cannot be written.
    """
    path = jar_path()
    make_cache_directory()
    with tempfile.TemporaryDirectory(prefix="drivetrain-warm-up-") as scratch:
        _compile(Path(scratch))
        content = _jar_of(Path(scratch))
    if usable_jar() is None or path.read_bytes() != content:
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_bytes(content)
        aside.chmod(0o600)
        sync(aside)
        publish(aside, path)
    return path


def _jar_of(directory: Path) -> bytes:
    """The classes of a directory as a jar. The same classes give the same bytes: it contains no current
    time."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as jar:
        for file in sorted(directory.rglob("*.class")):
            jar.writestr(zipfile.ZipInfo(str(file.relative_to(directory))), file.read_bytes())
    return content.getvalue()


def _sources() -> list[Path]:
    return sorted(_SOURCES.rglob("*.java"))


def _compile(directory: Path) -> None:
    """Write the classes into `directory`, by a Java process with Spark's jars and nothing else."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False)
    conf.set("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} {QUIET}")
    # Java warns there of modules that Spark uses, whatever the log's settings.
    gateway: JavaGateway = launch_gateway(conf, {"stderr": subprocess.DEVNULL})
    try:
        jvm = gateway.jvm
        files = gateway.new_array(jvm.java.io.File, len(_sources()))
        for index, source in enumerate(_sources()):
            files[index] = jvm.java.io.File(str(source))
        compiler = jvm.org.codehaus.janino.CompilerFactory().newCompiler()
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        compiler.setIClassLoader(jvm.org.codehaus.janino.ClassLoaderIClassLoader(loader))
        compiler.setDestinationDirectory(jvm.java.io.File(str(directory)), False)
        compiler.compile(files)
    except Exception as error:
        raise UnavailableError(
            "Spark's Java compiler did not accept a class of Drivetrain",
            got=str(error).strip().splitlines()[0],
            remedy="everything works without it; please report this error",
        ) from error
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
