"""Trained parameters: who may store those of a job, how they are checked, and how they are read back.

They arrive as numpy's ``.npz``. Nothing here unpickles or decompresses: the headers of its arrays say enough.
"""

import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, get_args

import numpy as np
from django.conf import settings

from controlplane.api.problems import Problem
from controlplane.jobs.models import Job
from controlplane.protocol.keys import matches, process_key
from controlplane.protocol.orders import Role

MAX_MODEL_BYTES = 4 * 1024**3
CHUNK_BYTES = 1024 * 1024
SCHEME = "Process"


def upload_allowed(job_id: int, authorization: str) -> bool:
    """Whether ``Process <role>:<index>:<instance>:<hex key>`` is shown by a worker of the job."""
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
    return key is not None and matches(process_key(bytes(key), get_args(Role)[0], int(index), instance), given)


def store_model(job_id: int, stream: IO[bytes]) -> Path:
    """Write the upload beside its place, check it, and put it there at once.

    Raises:
        Problem: if it is too large, or not arrays of numbers.
    """
    folder = Path(settings.DATA_DIR, "models")
    folder.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=folder, prefix=f"{job_id}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            _copy(stream, file)
            file.flush()
            os.fsync(file.fileno())
        check_arrays(Path(draft))
        path = folder / f"{job_id}.npz"
        os.replace(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)
    return path


def check_arrays(path: Path) -> None:
    """Refuse, with a ``Problem``, what is not a zip of ``.npy`` arrays of numbers."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.namelist()
            faults = [name for name in entries if not name.endswith(".npy") or not _is_numeric(archive, name)]
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise Problem(400, f"the body is not a numpy .npz file: {error}") from None
    if faults or not entries:
        found = f"{faults[0]!r} is none" if faults else "it is empty"
        raise Problem(400, f"the body must be a numpy .npz of arrays of numbers: {found}")


def chunks(path: Path) -> Iterator[bytes]:
    """The file, piece by piece."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _copy(stream: IO[bytes], file: IO[bytes]) -> None:
    size = 0
    while chunk := stream.read(CHUNK_BYTES):
        size += len(chunk)
        if size > MAX_MODEL_BYTES:
            raise Problem(413, f"the model is larger than {MAX_MODEL_BYTES} bytes, which is the most that is kept")
        file.write(chunk)


def _is_numeric(archive: zipfile.ZipFile, name: str) -> bool:
    with archive.open(name) as member:
        version = np.lib.format.read_magic(member)
        read: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        _, _, dtype = read(member)
    return dtype.kind in "biuf"
