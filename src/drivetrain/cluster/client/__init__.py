"""Clients of a cluster: submit applications, watch, end and restart them."""

from drivetrain.cluster.client.attachment import ReportEnd, ShowNotice, ShowStatus
from drivetrain.cluster.client.blocking_client import BlockingClient, connect
from drivetrain.cluster.client.client import Client
from drivetrain.cluster.client.client_errors import (
    AlreadyOverError,
    ApplicationFailedError,
    ApplicationKilledError,
    ApplicationNameError,
    ApplicationNameTakenError,
    ApplicationOverError,
    MasterFailureError,
    NoLogError,
    SpecificationTooLargeError,
    StillUnderWayError,
    UnknownApplicationError,
)
from drivetrain.cluster.client.listing import runs_on
from drivetrain.cluster.client.open_client import open_client
from drivetrain.cluster.client.process_logs import Piece
from drivetrain.cluster.client.refusals import error_of_end, error_of_view
from drivetrain.cluster.client.submission import Submission, prepare_submission
from drivetrain.cluster.leader import NoLeaderError, NoMasterError, SecretRefusedError

__all__ = [
    "AlreadyOverError",
    "ApplicationFailedError",
    "ApplicationKilledError",
    "ApplicationNameError",
    "ApplicationNameTakenError",
    "ApplicationOverError",
    "BlockingClient",
    "Client",
    "MasterFailureError",
    "NoLeaderError",
    "NoLogError",
    "NoMasterError",
    "Piece",
    "ReportEnd",
    "SecretRefusedError",
    "ShowNotice",
    "ShowStatus",
    "SpecificationTooLargeError",
    "StillUnderWayError",
    "Submission",
    "UnknownApplicationError",
    "connect",
    "error_of_end",
    "error_of_view",
    "open_client",
    "prepare_submission",
    "runs_on",
]
