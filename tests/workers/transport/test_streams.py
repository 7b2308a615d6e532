"""Another transport replaces one module: here streams are Unix sockets, and a port is the name of a file."""

import socket
from itertools import count
from pathlib import Path

import pytest

from tests.workers.driver import Cluster, job_spec
from workers.transport import streams


@pytest.fixture
def unix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes all streams Unix sockets. The ports that were connected to."""
    connected: list[int] = []
    ports = count(1)

    class Listening(streams.Listening):
        def __init__(self, host: str) -> None:
            self.port = next(ports)
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.bind(str(tmp_path / str(self.port)))
            self._socket.listen()
            self._socket.setblocking(False)

        def accept(self) -> tuple[socket.socket, str]:
            return self._socket.accept()[0], "here"

    def connect(host: str, port: int, *, within_s: float) -> socket.socket:
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(within_s)
        stream.connect(str(tmp_path / str(port)))
        connected.append(port)
        return stream

    monkeypatch.setattr(streams, "Listening", Listening)
    monkeypatch.setattr(streams, "connect", connect)
    return connected


def test_workers_and_servers_exchange_parameters_over_any_streams(unix: list[int]) -> None:
    with Cluster(job_spec(workers=2, servers=2), [[8, 8]] * 3, block_bytes=1024) as cluster:
        cluster.run()
        assert {len(cluster.reports(rank)) for rank in (0, 1)} == {3}
    assert set(unix) == {1, 2}
