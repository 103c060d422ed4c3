"""Java libraries that Spark lacks, fetched by the Ivy inside Spark and kept in the user's cache.

The problem: Spark's Kafka connector is not in PySpark. Spark's own way to get it (`spark.jars.packages`)
queries a repository at every start, follows every dependency of a package although Spark has most of them,
and reports a missing package in a page of Java.

The design: PySpark contains Apache Ivy, which has a command line. It gets exactly the packages to fetch,
without their dependencies, and puts their jars into a folder of the cache that is named after the packages.
From then on only that folder is read, with or without a network. Ivy asks the local Maven repository first
and then its default, unless a settings file names others (a mirror, a proxy with a password); a proxy without
a password is taken from `https_proxy`, as in other programs. Jars whose checksum is pinned here are verified.

What if we die here: Ivy writes into a temporary folder, which gets its name once it is complete and verified.

Invariants:

1. A folder of the cache holds all of its packages, and each matches its pinned checksum.
2. A second call reads nothing but a folder.
3. A folder that other users could have written is not used: it is code.

Called by `kafka_connector`, `drivetrain doctor` and the tests' broker. Source: Spark's `MavenUtils`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from drivetrain.durable import publish_directory
from drivetrain.errors import ConfigError, MissingDependencyError, UnavailableError
from drivetrain.runtime.user_cache import cache_directory
from drivetrain.spark.session.cache_directory import (
    is_usable,
    make_cache_directory,
    require_usable,
)
from drivetrain.spark.session.java import java_program

TIMEOUT_S = 600
_SETTINGS = """<ivysettings>
  <settings defaultResolver="all"/>
  <caches defaultCacheDir={cache}/>
  <resolvers><chain name="all" returnFirst="true">
    <ibiblio name="local" root="file:${{user.home}}/.m2/repository/" m2compatible="true" usepoms="false"/>
    <ibiblio name="public" m2compatible="true" usepoms="false"/>
  </chain></resolvers>
</ivysettings>
"""


def cached(packages: Sequence[str]) -> list[Path] | None:
    """The jars of these packages (`group:artifact:version[:classifier]`) if they were fetched before,
    else None.

    None too when others could have written them.
    """
    place = _place(packages)
    return sorted(place.glob("*.jar")) if is_usable(place) else None


def fetch(packages: Sequence[str], checksums: Mapping[str, str], settings: str | None = None) -> list[Path]:
    """The jars of these packages, from the cache or else fetched into it: seconds, or minutes for many.

    `checksums` are the SHA-256 of jars, keyed by package; jars without one are not verified. `settings` is an
    Ivy settings file, for a mirror or a proxy. Raises `MissingDependencyError` without Java or PySpark,
    `ConfigError` for an invalid package name, `UnavailableError` when a package cannot be fetched, and
    `UserError` when others can write to the cache or to these jars in it.
    """
    there = cached(packages)
    if there is not None:
        return there
    place = _place(packages)
    make_cache_directory()
    require_usable(place)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".fetching-") as scratch:
        jars = Path(scratch, "jars")
        _run_ivy(packages, Path(scratch), jars, settings)
        for package in packages:
            _, *named = _split(package)
            _compare(package, jars / f"{'-'.join(filter(None, named))}.jar", checksums.get(package))
        try:
            publish_directory(jars, place)
        except OSError:
            if not is_usable(place):  # otherwise another process was faster: its jars are just as good
                raise
    return sorted(place.glob("*.jar"))


def _place(packages: Sequence[str]) -> Path:
    name = _split(packages[0])[1]
    return cache_directory() / f"{name}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:12]}"


def _split(package: str) -> tuple[str, str, str, str]:
    parts = package.split(":")
    if len(parts) not in (3, 4) or not all(parts) or any(c in package for c in '/\\ <>"'):
        expected = "group:artifact:version or group:artifact:version:classifier"
        raise ConfigError("not a Java package", expected=expected, got=package)
    return parts[0], parts[1], parts[2], parts[3] if len(parts) == 4 else ""


def _dependency(package: str) -> str:
    group, artifact, version, classifier = map(quoteattr, _split(package))
    chosen = f"<artifact name={artifact} type='jar' ext='jar' m:classifier={classifier}/>"
    return (
        f"<dependency org={group} name={artifact} rev={version} transitive='false' conf='default->default'>"
        f"{chosen if classifier != quoteattr('') else ''}</dependency>"
    )


def _run_ivy(packages: Sequence[str], scratch: Path, jars: Path, settings: str | None) -> None:
    wanted = "".join(map(_dependency, packages))
    (scratch / "ivy.xml").write_text(
        "<ivy-module version='2.0' xmlns:m='http://ant.apache.org/ivy/maven'>"
        "<info organisation='drivetrain' module='jars'/><configurations>"
        f"<conf name='default'/></configurations><dependencies>{wanted}</dependencies></ivy-module>"
    )
    (scratch / "settings.xml").write_text(_SETTINGS.format(cache=quoteattr(str(scratch / "cache"))))
    java = java_program()
    if java is None or shutil.which(java) is None:
        raise MissingDependencyError(
            "Java is needed to fetch Java libraries", remedy="`drivetrain doctor` shows how to get it"
        )
    command = [
        java,
        *_proxy(os.environ),
        *("-cp", _ivy(), "org.apache.ivy.Main"),
        *("-settings", settings or str(scratch / "settings.xml")),
        *("-ivy", str(scratch / "ivy.xml")),
        *("-cache", str(scratch / "cache")),
        *("-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"),
        *("-types", "jar", "bundle"),
        "-error",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise _unavailable(packages, f"no answer within {TIMEOUT_S} s") from error
    if done.returncode != 0 or not jars.is_dir():
        output = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        missing = [line.lstrip(": ") for line in output if "not found" in line and line.startswith("::")]
        raise _unavailable(packages, "; ".join(missing[:5]) or "; ".join(output[-3:]) or "Ivy said nothing")


def _compare(package: str, jar: Path, checksum: str | None) -> None:
    if not jar.is_file():
        raise _unavailable([package], "no jar")
    if checksum is None:
        return
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    if found != checksum:
        raise UnavailableError(
            f"the jar of {package} is not the one that was released",
            expected=f"SHA-256 {checksum}",
            got=found,
            remedy="check the mirror, the proxy and the folder ~/.m2",
        )


def _ivy() -> str:
    """The Ivy among Spark's jars."""
    import pyspark

    found = sorted(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    if not found:
        raise MissingDependencyError(
            "this PySpark has no Ivy to fetch Java libraries with",
            where=pyspark.__file__,
            remedy="give the jars themselves (kafka.jars)",
        )
    return str(found[-1])


def _proxy(environ: Mapping[str, str]) -> list[str]:
    """Java's options for the proxy that the environment names; Java would not use a password in it."""
    options: list[str] = []
    for scheme in ("http", "https"):
        name = f"{scheme}_proxy"
        found = urlsplit(environ.get(name) or environ.get(name.upper()) or "")
        if found.hostname:
            options += [
                f"-D{scheme}.proxyHost={found.hostname}",
                f"-D{scheme}.proxyPort={found.port or 3128}",
            ]
    exempt = environ.get("no_proxy") or environ.get("NO_PROXY")
    if options and exempt:
        hosts = "|".join(
            f"*{h.strip()}" if h.strip().startswith(".") else h.strip() for h in exempt.split(",")
        )
        options.append(f"-Dhttp.nonProxyHosts={hosts}")
    return options


def _unavailable(packages: Sequence[str], got: str) -> UnavailableError:
    return UnavailableError(
        f"Java libraries could not be fetched: {', '.join(packages[:3])}{' …' if len(packages) > 3 else ''}",
        got=got,
        remedy="behind a proxy set https_proxy; for a mirror give an Ivy settings file (kafka.ivy-settings); "
        "without a network copy the jars here and name them (kafka.jars)",
    )
