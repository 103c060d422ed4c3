"""The settings of an application's object stores: plain values that are sent to Spark's workers.

Credentials are references (see `config.references`), which the process that connects resolves. So the
settings may be stored and sent as they are.

Called by `locations`, and by everything that passes them on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from drivetrain.config import Config
from drivetrain.config.catalog import abfs, gs
from drivetrain.config.catalog import hdfs as hdfs_keys
from drivetrain.config.catalog import s3 as keys
from drivetrain.config.key import Key
from drivetrain.config.references import resolved


@dataclass(frozen=True)
class StoreSettings:
    """The settings of the sections `[s3]`, `[gs]`, `[abfs]` and `[hdfs]`; None: the value comes from the
    environment of the process.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    path_style: bool = True
    timeout_ms: int = 30_000
    retry_ms: int = 120_000
    gs_endpoint: str | None = None
    gs_service_account_key: str | None = None
    gs_token: str | None = None
    gs_timeout_ms: int = 30_000
    gs_retry_ms: int = 120_000
    abfs_endpoint: str | None = None
    abfs_account: str | None = None
    abfs_account_key: str | None = None
    abfs_sas_token: str | None = None
    abfs_timeout_ms: int = 30_000
    abfs_retry_ms: int = 120_000
    hdfs_config_dir: str | None = None
    hdfs_timeout_ms: int = 30_000
    hdfs_retry_ms: int = 120_000

    def secrets(self, section: str = "s3") -> dict[str, str]:
        """The credentials that a section gives, resolved in this process, by `obstore`'s names.

        Raises `SecretNotFoundError`.
        """
        given = {
            "s3": {
                "access_key_id": self.access_key,
                "secret_access_key": self.secret_key,
                "session_token": self.session_token,
            },
            "gs": {"service_account_key": self.gs_service_account_key, "bearer_token": self.gs_token},
            "abfs": {"account_key": self.abfs_account_key, "sas_key": self.abfs_sas_token},
        }[section]
        where = f"the section [{section}] of the configuration"
        return {name: resolved(text, where) for name, text in given.items() if text is not None}

    def impatient(self, retry_ms: int) -> StoreSettings:
        """The same settings with another time for which requests are tried again."""
        return replace(
            self, retry_ms=retry_ms, gs_retry_ms=retry_ms, abfs_retry_ms=retry_ms, hdfs_retry_ms=retry_ms
        )

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
            gs_endpoint=given(gs.ENDPOINT),
            gs_service_account_key=given(gs.SERVICE_ACCOUNT_KEY),
            gs_token=given(gs.TOKEN),
            gs_timeout_ms=config[gs.TIMEOUT],
            gs_retry_ms=config[gs.RETRY_FOR],
            abfs_endpoint=given(abfs.ENDPOINT),
            abfs_account=given(abfs.ACCOUNT),
            abfs_account_key=given(abfs.ACCOUNT_KEY),
            abfs_sas_token=given(abfs.SAS_TOKEN),
            abfs_timeout_ms=config[abfs.TIMEOUT],
            abfs_retry_ms=config[abfs.RETRY_FOR],
            hdfs_config_dir=given(hdfs_keys.CONFIG_DIR),
            hdfs_timeout_ms=config[hdfs_keys.TIMEOUT],
            hdfs_retry_ms=config[hdfs_keys.RETRY_FOR],
        )
