"""One server that stays away: how long a worker waits for it."""

import socket
import threading
from functools import partial

import pytest

from controlplane.protocol.orders import ServerAddress
from workers.trainer import exchange
from workers.trainer.exchange import Server
from workers.transport.client import Outcome, ServerConnection
from workers.transport.errors import ServerLost
from workers.transport.handshake import Peer

ATTEMPTS = 20


@pytest.fixture
def nobody() -> ServerAddress:
    """Where no one listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return ServerAddress(index=0, instance="s0", host="127.0.0.1", port=port, key=b"key")


def never(connection: ServerConnection) -> Outcome:
    raise AssertionError("there is no server")


def test_server_is_waited_for_as_long_as_no_one_could_tell_that_it_is_gone(
    nobody: ServerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "RECONNECT_S", -1.0)  # patience is over before it begins
    monkeypatch.setattr(exchange, "PAUSE_S", 0.0)
    heard = iter([False] * ATTEMPTS + [True])
    connect = partial(ServerConnection, peer=Peer(0, "w0"))
    server = Server(nobody, connect, threading.Event(), in_reach=lambda: next(heard))
    with pytest.raises(ServerLost, match="server 0 was away"):
        server.ask(never)
    assert list(heard) == [], "it was tried until the control plane was heard again"
