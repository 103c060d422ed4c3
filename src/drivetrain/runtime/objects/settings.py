"""The settings of an application's object stores: plain values that are sent to Spark's workers.

Credentials are references (see `config.references`), which the process that connects resolves. So the
settings may be stored and sent as they are.

Called by `locations`, and by everything that passes them on.
"""

from __future__ import annotations

from dataclasses import dataclass

from drivetrain.config import Config
from drivetrain.config.catalog import hdfs as hdfs_keys
from drivetrain.config.catalog import s3 as keys
from drivetrain.config.key import Key
from drivetrain.config.references import resolved


@dataclass(frozen=True)
class StoreSettings:
    """The settings of the sections `[s3]` and `[hdfs]`; None: the value comes from the environment of the
    process.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    path_style: bool = True
    timeout_ms: int = 30_000
    retry_ms: int = 120_000
    hdfs_config_dir: str | None = None
    hdfs_timeout_ms: int = 30_000
    hdfs_retry_ms: int = 120_000

    def secrets(self) -> dict[str, str]:
        """The credentials that are given, resolved in this process; raises `SecretNotFoundError`."""
        given = {
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "session_token": self.session_token,
        }
        where = "the section [s3] of the configuration"
        return {name: resolved(text, where) for name, text in given.items() if text is not None}

    @classmethod
    def of(cls, config: Config) -> StoreSettings:
        """The settings that a configuration has."""

        def given(key: Key[str]) -> str | None:
            return None if config[key] == key.default else config[key]

        return cls(
            endpoint=given(keys.ENDPOINT),
            region=given(keys.REGION),
            access_key=given(keys.ACCESS_KEY),
            secret_key=given(keys.SECRET_KEY),
            session_token=given(keys.SESSION_TOKEN),
            path_style=config[keys.PATH_STYLE],
            timeout_ms=config[keys.TIMEOUT],
            retry_ms=config[keys.RETRY_FOR],
            hdfs_config_dir=given(hdfs_keys.CONFIG_DIR),
            hdfs_timeout_ms=config[hdfs_keys.TIMEOUT],
            hdfs_retry_ms=config[hdfs_keys.RETRY_FOR],
        )
