"""An agent's files: its credential, and the process instances that it has started. They survive restarts.

One folder per control plane and name, readable only by its owner, locked by one running agent at a time.
"""

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from controlplane.protocol.base import UNREADABLE, Value
from controlplane.protocol.messages import ProcessName

ALIVE = "alive"
"""Touched by the agent's loop, connected or not."""

CONNECTED = "connected"
"""Touched at each heartbeat that is sent."""


class StateError(RuntimeError):
    """The state folder cannot be used; the message has the reason and the cure."""


class Credential(Value, frozen=True, kw_only=True):
    """An agent's credential. Never printed: its ``repr`` keeps the secret."""

    agent: int
    name: str
    url: str
    secret: str

    def __repr__(self) -> str:
        return f"Credential(agent={self.agent}, name={self.name!r}, url={self.url!r})"


class AgentState:
    """The folder of one agent: one name at one control plane."""

    def __init__(self, root: Path, *, url: str, name: str) -> None:
        key = hashlib.sha256(f"{url}\n{name}".encode()).hexdigest()[:16]
        self.folder = root / f"agent-{key}"
        self._name = name
        self._lock: int | None = None

    @property
    def credential_file(self) -> Path:
        """The file of the credential, mode 0600."""
        return self.folder / "credential.json"

    def open(self) -> None:
        """Create the folder and lock it.

        Raises:
            StateError: if it cannot be written, or a running agent has locked it.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(
                f"the state folder {self.folder} cannot be written ({error.strerror}): "
                "make it writable or choose another with --state-dir"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise StateError(
                f"an agent named {self._name} is already running from {self.folder}: "
                "stop it, or join under another --name"
            ) from None

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read_credential(self) -> Credential | None:
        """The credential of an earlier enrolment, if there is one.

        Raises:
            StateError: if others can read the file, or it is invalid.
        """
        try:
            mode = self.credential_file.stat().st_mode & 0o777
            if mode & 0o077:
                raise StateError(f"{self.credential_file} can be read by others (mode {mode:o}): chmod 600 it")
            return msgspec.json.decode(self.credential_file.read_bytes(), type=Credential)
        except FileNotFoundError:
            return None
        except (OSError, *UNREADABLE) as error:
            raise StateError(f"{self.credential_file} cannot be read ({error}): remove it and enrol again") from None

    def keep_credential(self, credential: Credential) -> None:
        """Replace the credential, and forget processes of an earlier enrolment."""
        self._replace(self.credential_file, msgspec.json.encode(credential))
        self._started_file.unlink(missing_ok=True)

    def replace_credential(self, credential: Credential) -> None:
        """Replace the credential, keeping the agent's identity; it is on disk when this returns.

        Raises:
            StateError: if it could not be written; then the old one is kept.
        """
        self._replace(self.credential_file, msgspec.json.encode(credential), lasting=True)

    def mark(self, sign: str) -> None:
        """Touch the file ``sign`` for ``seconds_since``; a full disk must not end running processes."""
        with contextlib.suppress(OSError):
            (self.folder / sign).touch()

    def read_started(self) -> set[ProcessName]:
        """Return the process instances that this agent has started and that the last orders still contained."""
        try:
            return msgspec.json.decode(self._started_file.read_bytes(), type=set[ProcessName])
        except (FileNotFoundError, *UNREADABLE):
            return set()

    def store_started(self, names: Iterable[ProcessName]) -> None:
        """Store the instances; called before a process is started, so that no instance is ever started twice."""
        self._replace(self._started_file, msgspec.json.encode(list(names)))

    @property
    def _started_file(self) -> Path:
        return self.folder / "begun.json"

    def _replace(self, file: Path, content: bytes, *, lasting: bool = False) -> None:
        """Write a temporary file and rename it, so that a crash leaves the old or the new content. ``mkstemp`` sets
        mode 0600.

        ``lasting``: the content survives even a crash of the machine.
        """
        try:
            handle, temporary = tempfile.mkstemp(dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(content)
                    if lasting:
                        stream.flush()
                        os.fsync(stream.fileno())
                os.replace(temporary, file)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            raise StateError(f"{file} cannot be written: {error.strerror}") from None
        if lasting:
            self._settle_names()

    def _settle_names(self) -> None:
        """Flush the rename to disk. Errors are ignored, since the rename has happened."""
        with contextlib.suppress(OSError):
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def seconds_since(sign: str, root: Path) -> float | None:
    """Age of the newest file ``sign`` of any agent with state under ``root``; None if there is none."""
    touched_s = [file.stat().st_mtime for file in root.glob(f"agent-*/{sign}")]
    return time.time() - max(touched_s) if touched_s else None


def default_root() -> Path:
    """The default folder of agents' state."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "paceline"
