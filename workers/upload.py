"""Uploads the final parameters to the control plane: an ``.npz`` file, streamed, without pickle."""

import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO

import httpx
import numpy as np
import structlog

from controlplane.protocol.addresses import ControlPlane
from controlplane.protocol.orders import ProcessOrder
from workers.backoff import Backoff
from workers.http import http_client

PIECE_BYTES = 1024 * 1024
TIMEOUT_S = 60.0
log = structlog.get_logger("upload")


class UploadError(RuntimeError):
    """The control plane refused the model; the message has the reason."""


def upload_model(
    plane: ControlPlane,
    order: ProcessOrder,
    arrays: Mapping[str, np.ndarray],
    *,
    stopping: threading.Event,
    backoff: Backoff | None = None,
) -> None:
    """Upload ``arrays`` as the model of the order's job; waits while the control plane is unreachable.

    Raises:
        UploadError: if it refuses the model, or this process has to end before it is stored.
    """
    backoff = backoff or Backoff()
    with tempfile.TemporaryFile() as file:
        write_npz(file, arrays)
        size = file.tell()
        while not stopping.is_set():
            file.seek(0)
            why = _put(plane, order, file, size)
            if why is None:
                log.info(f"the model of job {order.job} is stored ({size} bytes)")
                return
            delay_s = backoff.next_s()
            log.warning(f"the model of job {order.job} is not stored yet ({why}); trying again in {delay_s:.1f} s")
            stopping.wait(delay_s)
    raise UploadError(f"the model of job {order.job} is not stored: this process was asked to end")


def write_npz(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file for ``numpy.load(file, allow_pickle=False)``; unlike ``numpy.savez``, with any names."""
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)


def _put(plane: ControlPlane, order: ProcessOrder, file: IO[bytes], size: int) -> str | None:
    """One attempt: None if the model is stored, else the reason for a retry."""
    headers = {
        "Authorization": f"Process {order.role}:{order.index}:{order.instance}:{order.key}",
        "Content-Type": "application/octet-stream",
        "Content-Length": str(size),
    }
    try:
        with http_client(plane, TIMEOUT_S) as client:
            address = plane.http(f"/api/v1/jobs/{order.job}/model")
            response = client.put(address, content=_pieces(file), headers=headers)
    except httpx.TransportError as error:
        return str(error) or type(error).__name__
    if response.is_success:
        return None
    if response.is_server_error or response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        return f"HTTP {response.status_code}"
    raise UploadError(f"the control plane refused the model of job {order.job}: {response.text[:500]}")


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece
