"""Stores, checks and reads the trained parameters of jobs.

They arrive as numpy's ``.npz`` and are written to disk in pieces; ``npz`` checks the format.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, get_args

from django.conf import settings

from controlplane.api.actions import quota_problem
from controlplane.api.npz import NoModel, check_npz
from controlplane.api.problems import Problem
from controlplane.jobs.models import Job
from controlplane.jobs.sealing import unseal
from controlplane.people.quotas import QuotaExceeded, check_model
from controlplane.protocol.keys import matches, process_key
from controlplane.protocol.orders import Role

MAX_MODEL_BYTES = 4 * 1024**3
CHUNK_BYTES = 1024 * 1024
SCHEME = "Process"


def upload_allowed(job_id: int, authorization: str) -> bool:
    """Whether the header ``Process <role>:<index>:<instance>:<hex key>`` belongs to a worker of the job."""
    scheme, _, credential = authorization.partition(" ")
    name, _, shown = credential.strip().rpartition(":")
    role, _, rest = name.partition(":")
    index, _, instance = rest.partition(":")
    if scheme != SCHEME or role != "worker" or not index.isdecimal() or len(index) > 6 or not instance:
        return False
    key = Job.objects.filter(pk=job_id).values_list("key", flat=True).first()
    try:
        given = bytes.fromhex(shown)
    except ValueError:
        return False
    return key is not None and matches(process_key(unseal(key), get_args(Role)[0], int(index), instance), given)


def store_model(job: Job, stream: IO[bytes]) -> Path:
    """Write the upload to a temporary file, check it, and move it to its place atomically.

    Raises:
        Problem: if it is too large, beyond a quota, or not arrays of numbers.
    """
    job_id = job.pk
    folder = Path(settings.DATA_DIR, "models")
    folder.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=folder, prefix=f"{job_id}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            _copy(stream, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            check_model(job, Path(draft).stat().st_size)
        except QuotaExceeded as exceeded:
            raise quota_problem(exceeded) from None
        check_arrays(Path(draft))
        path = folder / f"{job_id}.npz"
        os.replace(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)
    return path


def check_arrays(path: Path) -> None:
    """Raise a ``Problem`` unless the file is a zip of numeric ``.npy`` arrays."""
    try:
        check_npz(path)
    except NoModel as error:
        raise Problem(400, str(error)) from None


def chunks(path: Path) -> Iterator[bytes]:
    """The content of the file in chunks."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _copy(stream: IO[bytes], file: IO[bytes]) -> None:
    size = 0
    while chunk := stream.read(CHUNK_BYTES):
        size += len(chunk)
        if size > MAX_MODEL_BYTES:
            raise Problem(413, f"the model exceeds the limit of {MAX_MODEL_BYTES} bytes")
        file.write(chunk)
