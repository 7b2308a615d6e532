"""What must hold before anything is started: a folder that can be written and is ours alone, and a free port."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.runtime.embedded.errors import CannotStart


@contextmanager
def own_folder(folder: Path) -> Iterator[Path]:
    """Make the data folder and hold its lock, which the kernel lets go however this process ends.

    Raises:
        CannotStart: if it cannot be written, or another control plane holds it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        cure = "name a folder that you may write with PACELINE_DATA_DIR"
        raise CannotStart(f"The data folder {folder} cannot be written ({error.strerror}): {cure}.") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 20).decode() or "unknown"
            raise CannotStart(
                f"The data folder {folder} is in use by a control plane that runs already (process {holder}): "
                "stop that one, or name another folder with PACELINE_DATA_DIR."
            ) from None
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
        yield folder
    finally:
        os.close(lock)


def check_port(host: str, port: int) -> None:
    """See that a server could listen there.

    Raises:
        CannotStart: if something listens there already, or the address is none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            cure = "stop what listens there, or choose another with --port"
            raise CannotStart(f"Port {port} on {host} cannot be used ({error.strerror}): {cure}.") from None


def free_port() -> int:
    """A loopback port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
