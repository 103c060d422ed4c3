"""Requests that bring an application: plan it, or submit it.

The body is the application's file, or a zip of a directory with the file in it. The other parameters are
checked first. Then the body is written to disk as it arrives, up to a limit; the file runs in a process of
its own (see `planning`), never in the console.

Called by `console.routes.writes` and `console.handlers.changes`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from drivetrain.cluster.client import Submission
from drivetrain.code.archive import Archive
from drivetrain.config import find_key
from drivetrain.config.catalog import console as keys
from drivetrain.console import submissions
from drivetrain.console.answers.graph import PlannedUpload
from drivetrain.console.answers.operations import Submitted
from drivetrain.console.planning.requests import ARCHIVE, UPLOAD, Outcome, PrepareUpload
from drivetrain.console.problems import RequestError
from drivetrain.console.route import V1, Call, Reply
from drivetrain.console.services import OpenCount
from drivetrain.durable import writing
from drivetrain.errors import InternalError
from drivetrain.private_files import private

MEDIA: Final = "text/x-python, application/zip, application/octet-stream"
UPLOAD_S: Final = 600.0
MOST_UPLOADS: Final = 10
"""Uploads that arrive at once: each has up to `console.max-upload` on disk."""
_KEY: Final = "idempotency-key"
_LONGEST_KEY: Final = 200
_FILE: Final = re.compile(
    r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*/)*[A-Za-z0-9_][A-Za-z0-9_.-]*\.py(?::[A-Za-z_]\w*)?"
)


class UploadQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the options of `drivetrain submit` say; `file` is FILE.py or FILE.py:NAME, in a zip its path
    there.
    """

    file: Annotated[
        str, Meta(max_length=300, description="The application's file; FILE.py:NAME for one of many.")
    ]
    set: Annotated[
        tuple[Annotated[str, Meta(max_length=100_000)], ...],
        Meta(max_length=1000, description="NAME=VALUE: a setting of the application or a configuration key."),
    ] = ()
    name: Annotated[
        Annotated[str, Meta(max_length=100)] | None, Meta(description="Its name in the cluster.")
    ] = None
    fresh: Annotated[bool, Meta(description="Delete the state of earlier runs.")] = False
    replay_from: Annotated[
        Annotated[str, Meta(max_length=64)] | None, Meta(description="Process from this moment on again.")
    ] = None
    savepoint: Annotated[
        Annotated[str, Meta(max_length=1000)] | None, Meta(description="The savepoint to start from.")
    ] = None
    priority: Annotated[
        Literal["high", "normal", "low"], Meta(description="Priority of its requests for slots.")
    ] = "normal"


async def plan(call: Call) -> PlannedUpload:
    """How an upload would run; nothing is submitted."""
    asked = _asked(call)
    with tempfile.TemporaryDirectory(dir=call.services.planning.directory, prefix="upload-") as place:
        await take_upload(call, Path(place))
        outcome = await call.services.planning.prepare(asked, Path(place))
        if outcome.planned is None:
            raise InternalError("a planning process gave neither a plan nor an error")
        return outcome.planned


async def submit(call: Call) -> Reply:
    """Submit an upload: 201 once the cluster has accepted it, 200 if it had accepted it before."""
    call.services.require_cluster("take applications", "start it with drivetrain run")
    asked, key = _asked(call), call.request.headers.get(_KEY)
    if key is not None and not 0 < len(key) <= _LONGEST_KEY:
        raise RequestError(
            "this Idempotency-Key cannot be used",
            expected=f"1 to {_LONGEST_KEY} characters",
            remedy="shorten it",
        )
    with tempfile.TemporaryDirectory(dir=call.services.planning.directory, prefix="upload-") as place:
        sha256 = await take_upload(call, Path(place))
        if key is None:
            outcome = await call.services.planning.prepare(asked, Path(place))
            return _answer(call, await _submitted(call, outcome, Path(place), None), 201)
        id = submissions.submission_id(call.caller, key)
        fingerprint = hashlib.sha256(msgspec.json.encode((sha256, call.query))).hexdigest()
        known = call.services.submissions.begin(id, fingerprint)
        if known is not None:
            name = (await call.services.client.application(known)).spec.name
            return _answer(call, Submitted(app_id=known, name=name), 200)
        try:
            outcome = await call.services.planning.prepare(asked, Path(place))
            done = await _submitted(call, outcome, Path(place), id)
        except BaseException:
            call.services.submissions.failed(id)
            raise
        call.services.submissions.accepted(id, done.app_id)
        return _answer(call, done, 201)


async def _submitted(call: Call, outcome: Outcome, place: Path, id: str | None) -> Submitted:
    spec = outcome.spec
    if spec is None or outcome.sha256 is None:
        raise InternalError("a planning process gave neither a specification nor an error")
    data = await asyncio.to_thread((place / ARCHIVE).read_bytes)
    client = call.services.client
    app_id = await client.submit(
        Submission(spec, Archive(outcome.sha256, spec.file, data), None), submission_id=id
    )
    if id is not None:
        there = (await client.application(app_id)).spec
        if (there.code, there.name, there.settings) != (spec.code, spec.name, spec.settings):
            raise submissions.reused()  # the key was used through another console, or before this one started
    return Submitted(app_id=app_id, name=spec.name)


def _answer(call: Call, done: Submitted, status: int) -> Reply:
    root = call.request.scope.get("root_path", "")
    return Reply(done, status, {"Location": f"{root}{V1}/applications/{done.app_id}"})


async def take_upload(call: Call, place: Path) -> str:
    """Write the body to disk; returns its hash. Raises RequestError when it is too large or slow."""
    most = call.services.config[keys.MAX_UPLOAD]
    announced = call.request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most:
        raise _too_large(most)
    call.services.planning.require_place()
    digest, size = hashlib.sha256(), 0
    path = place / UPLOAD
    with (
        _counted(call.services.uploads),
        writing("an upload", path),
        open(path, "wb", opener=private) as file,
    ):
        try:
            async with asyncio.timeout(UPLOAD_S):
                async for part in call.request.stream():
                    size += len(part)
                    if size > most:
                        raise _too_large(most)
                    digest.update(part)
                    await asyncio.to_thread(file.write, part)
        except TimeoutError as error:
            raise RequestError(
                "the upload takes too long", expected=f"at most {UPLOAD_S:.0f} s", remedy="send it again"
            ) from error
    if not size:
        raise RequestError(
            "the request has no body",
            expected="the application's file, or a zip of its directory",
            remedy="send the file as the body, for example with curl --data-binary @FILE",
        )
    return digest.hexdigest()


@contextlib.contextmanager
def _counted(uploads: OpenCount) -> Iterator[None]:
    """Count an upload while it arrives; raises RequestError when too many do."""
    if uploads.count >= MOST_UPLOADS:
        raise RequestError(
            "too many uploads arrive at once",
            code="too-many",
            expected=f"at most {MOST_UPLOADS}",
            remedy="try again in a moment",
        )
    uploads.count += 1
    try:
        yield
    finally:
        uploads.count -= 1


def require_file(file: str) -> None:
    """Raise RequestError unless this can be the name of an application's file, or its path in a zip."""
    if _FILE.fullmatch(file) is None:
        raise RequestError(
            "not the name of an application's file",
            where="file",
            expected="a name that ends in .py, without spaces; with directories only for a zip",
            got=file[:200],
            remedy="give the name that the file has, or its path in the zip",
        )


def _asked(call: Call) -> PrepareUpload:
    query = call.query
    assert isinstance(query, UploadQuery)
    require_file(query.file)
    settings: dict[str, str] = {}
    configuration: dict[str, str] = {}
    for written in query.set:
        name, equals, value = written.partition("=")
        if not equals or not name.strip():
            raise RequestError(
                "set needs a name and a value", where="set", expected="NAME=VALUE", got=written[:200]
            )
        (configuration if find_key(name.strip()) is not None else settings)[name.strip()] = value
    return PrepareUpload(
        file=query.file,
        name=query.name,
        settings=settings,
        configuration=configuration,
        fresh=query.fresh,
        replay_from=query.replay_from,
        savepoint=query.savepoint,
        priority=query.priority,
    )


def _too_large(most: int) -> RequestError:
    return RequestError(
        "the upload is too large",
        code="too-large",
        expected=f"at most {most} bytes",
        remedy="leave data out of the archive, or have console.max-upload raised",
    )
