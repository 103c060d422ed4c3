"""A MariaDB server that accepts only encrypted connections."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from drivetrain.api import sinks
from drivetrain.connectors.sql.sql_sink import open_sql
from drivetrain.errors import OutputError
from drivetrain.spark.connector.sink import SinkContext
from mariadb_server import MariadbServer


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=60)


@pytest.mark.nightly("the unit tests of sinks die at every step; other tests use this server")
def test_a_server_is_recognized_by_its_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = MariadbServer()
    try:
        server.start()
        server.run("create database bank")
        server.kill()
        files = server.directory
        new = ("-newkey", "rsa:2048", "-nodes")
        for name in ("ca", "other"):
            paths = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
            openssl(files, "req", "-x509", *new, *paths, "-days", "2", "-subj", f"/CN={name}")
        openssl(files, "req", *new, "-keyout", "db.key", "-out", "db.csr", "-subj", "/CN=db")
        (files / "names").write_text("subjectAltName=IP:127.0.0.1")
        by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl(files, "x509", "-req", "-in", "db.csr", *by, "-out", "db.pem")
        (files / "db.key").chmod(0o644)
        server.authority = files / "ca.pem"
        server.start(
            f"--ssl-ca={files / 'ca.pem'}", f"--ssl-cert={files / 'db.pem'}", f"--ssl-key={files / 'db.key'}",
            "--require-secure-transport=ON",
        )  # fmt: skip
        monkeypatch.setenv("BANK_PASSWORD", server.password)

        def validate(authority: str) -> None:
            options = f"?ssl_ca={files / authority}&ssl_verify_cert=true&ssl_verify_identity=true"
            sink = sinks.mysql(server.url("bank", "BANK_PASSWORD") + options, "t")
            open_sql(sink, SinkContext("app-1", "t", str(tmp_path))).validate()

        validate("ca.pem")
        with pytest.raises(OutputError, match="certificate of the database is not accepted") as caught:
            validate("other.pem")
        assert "ssl_ca" in (caught.value.remedy or "")
        with pytest.raises(OutputError, match="a file for the connection"):
            validate("missing.pem")
    finally:
        server.close()
