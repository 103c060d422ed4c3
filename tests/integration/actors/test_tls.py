"""Actor systems over TLS, with certificates made for the test."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import os
from pathlib import Path

import pytest
from actor_processes import SECRET, Ping, Pong, child, system
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from drivetrain.actor import UnreachableError
from drivetrain.actor.remote import TlsConfigError, TlsSettings


class Authority:
    """Signs certificates for 127.0.0.1 and keeps them in a directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = directory / f"{name}.pem"
        certificate = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.file.write_bytes(pem(certificate.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, host: str = "127.0.0.1") -> list[str]:
        """Files of a certificate, its key and this authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        certificate = self._builder(subject, key).add_extension(names, critical=False)
        files = [self._directory / f"{name}.pem", self._directory / f"{name}.key"]
        files[0].write_bytes(pem(certificate.sign(self._key, hashes.SHA256())))
        files[1].touch(0o600)
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return [str(files[0]), str(files[1]), str(self.file)]

    def issue_beside(self, authority: str) -> list[str]:
        """As `issue`, when this authority's file is elsewhere by now."""
        return [*self.issue("late")[:2], authority]

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def test_messages_pass_both_ways_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")

    async def main() -> None:
        theirs, ours = authority.issue("theirs"), authority.issue("ours")
        async with (
            child(tmp_path, tls=theirs, secret=SECRET) as other,
            system(tls=ours, secret=SECRET) as here,
        ):
            echo = await here.lookup(other.echo)
            for number in range(1, 20):
                assert await echo.ask(Ping(number, bytes(50_000)), Pong) == Pong(number, number)
            assert other.log_lines == []

    asyncio.run(main())


@pytest.mark.parametrize("mistake", ["another authority", "another host", "no TLS"])
def test_who_has_no_right_certificate_is_refused(mistake: str, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path, "authority"), Authority(tmp_path, "stranger")

    async def main() -> None:
        theirs = authority.issue("theirs", host="127.0.0.9" if mistake == "another host" else "127.0.0.1")
        ours = stranger.issue("ours") if mistake == "another authority" else authority.issue("ours")
        options = {} if mistake == "no TLS" else {"tls": ours}
        async with child(tmp_path, tls=theirs) as other, system(**options) as here:
            with pytest.raises(UnreachableError):
                await here.lookup(other.echo, timeout_ms=10_000)
            # Whoever has the right one is still served.
            async with system("friend", tls=authority.issue("friend")) as friend:
                if mistake != "another host":
                    assert await (await friend.lookup(other.echo)).ask(Ping(1), Pong) == Pong(1, 1)

    asyncio.run(main())


def test_certificates_are_read_anew_when_they_change(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")

    async def main() -> None:
        theirs, ours = old.issue("theirs"), old.issue("ours")
        async with child(tmp_path, tls=theirs) as other:
            async with system(tls=ours) as here:
                assert await (await here.lookup(other.echo)).ask(Ping(1), Pong) == Pong(1, 1)
            # One file after the other, as somebody would put them there.
            for file, its in zip(new.issue("renewed"), theirs, strict=True):
                os.replace(file, its)
            async with system(tls=ours) as here:
                with pytest.raises(UnreachableError):
                    await here.lookup(other.echo, timeout_ms=10_000)
            async with system(tls=new.issue_beside(theirs[2])) as here:
                assert await (await here.lookup(other.echo)).ask(Ping(2), Pong) == Pong(2, 2)
            Path(theirs[0]).write_text("not a certificate")
            async with system(tls=new.issue_beside(theirs[2])) as here:
                assert await (await here.lookup(other.echo)).ask(Ping(3), Pong) == Pong(3, 3)

    asyncio.run(main())


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    certificate, key, authority = map(Path, Authority(tmp_path, "authority").issue("ours"))
    key.chmod(0o640)
    with pytest.raises(TlsConfigError, match="users other than the owner") as raised:
        TlsSettings(certificate, key, authority).server_context()
    assert "chmod 600" in str(raised.value)


def test_files_that_cannot_be_used_are_an_error_of_the_user(tmp_path: Path) -> None:
    certificate, _, authority = Authority(tmp_path, "authority").issue("ours")
    with pytest.raises(TlsConfigError, match="cannot be used"):
        TlsSettings(Path(certificate), tmp_path / "missing.key", Path(authority)).server_context()
