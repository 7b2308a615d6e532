"""Checks before anything is started: a private folder, a free port, and no access from other machines.

The folder also contains the address of the control plane that runs in it, for other commands.
"""

import fcntl
import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.runtime.embedded.errors import CannotStart

ADDRESS = "address"
"""The file in the data folder with the address of the control plane that runs there."""

LAST_PORT = 65_535
LOCAL_NAMES = ("localhost", "ip6-localhost")


@contextmanager
def own_folder(folder: Path) -> Iterator[Path]:
    """Make the data folder and hold its lock, which the kernel releases however this process ends.

    Raises:
        CannotStart: if it cannot be written, or another control plane holds it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        cure = "set PACELINE_DATA_DIR to a writable folder"
        raise CannotStart(f"The data folder {folder} cannot be written ({error.strerror}): {cure}.") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 20).decode() or "unknown"
            raise CannotStart(
                f"The data folder {folder} is in use by a running control plane (process {holder}): "
                "stop it, or set PACELINE_DATA_DIR to another folder."
            ) from None
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
        yield folder
    finally:
        os.close(lock)


@contextmanager
def announced(folder: Path, url: str) -> Iterator[None]:
    """Store the address in the folder during the block; written by rename, so that readers never see a part of it."""
    draft = folder / f"{ADDRESS}.{os.getpid()}"
    draft.write_text(f"{url}\n")
    draft.replace(folder / ADDRESS)
    try:
        yield
    finally:
        (folder / ADDRESS).unlink(missing_ok=True)


def running_address(folder: Path) -> str:
    """The address of the control plane that runs in this folder; empty if none does."""
    try:
        return (folder / ADDRESS).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host in LOCAL_NAMES


def check_exposure(host: str, *, insecure: bool) -> None:
    """Refuse unencrypted access from other machines unless the user declares the network private.

    Raises:
        CannotStart: if other machines could reach it unencrypted.
    """
    if not insecure and not is_loopback(host):
        raise CannotStart(
            f"--host {host} would send passwords and tokens over the network without TLS: listen on 127.0.0.1 "
            "behind a TLS proxy, or add --insecure if the network is private."
        )


def names_of(host: str) -> list[str]:
    """The names under which others reach a server that listens on ``host``: for a wildcard, all of this machine's."""
    if host not in {"", "0.0.0.0", "::"}:
        return [f"[{host}]" if ":" in host and "[" not in host else host]
    own = socket.gethostname()
    names = {own, socket.getfqdn(own), _outward_address()}
    try:
        found = {str(row[4][0]).partition("%")[0] for row in socket.getaddrinfo(own, None, type=socket.SOCK_STREAM)}
    except OSError:
        found = set()
    return sorted(f"[{name}]" if ":" in name else name for name in names | found if name)


def _outward_address() -> str:
    """The address that leads outwards; empty without a network. Connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation: it only picks a route
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def check_port(host: str, port: int) -> None:
    """Check that a server can listen there.

    Raises:
        CannotStart: if the port is in use or invalid, or the address is not one of this machine.
    """
    if not 0 < port <= LAST_PORT:
        raise CannotStart(
            f"Port {port} cannot be used: found {port}, expected 1 to {LAST_PORT}, or 0 for any free port."
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except UnicodeError:
            raise CannotStart(f"--host {host!r} is not a host name: use an address such as 127.0.0.1.") from None
        except OSError as error:
            cure = "stop the program that listens on it, or choose another port with --port"
            raise CannotStart(f"Port {port} on {host} cannot be used ({error.strerror}): {cure}.") from None


def free_port() -> int:
    """A loopback port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
