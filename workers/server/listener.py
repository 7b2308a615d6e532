"""Gives each connection of a worker or another server, once it is authenticated, its own thread."""

import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from workers.server.acceptor import Acceptor
from workers.server.meter import Meter
from workers.server.session import Session
from workers.server.store import Store
from workers.transport.channel import Channel
from workers.transport.encryption import PLAIN, Encryption
from workers.transport.errors import Interrupted, Stopped, TransportError
from workers.transport.handshake import KeyOf, Peer

log = logging.getLogger(__name__)

CLOSE_S = 5.0
MOST_OF_ONE = 8
"""Connections of one worker or server: it has one for its work, and a few that end by themselves soon."""


@dataclass(slots=True, eq=False)
class Served:
    """A connection and the thread that serves it."""

    channel: Channel
    peer: Peer
    thread: threading.Thread | None = None


class Listener:
    """The server's socket; listens from creation until ``close``. ``on_failure`` is called with unexpected errors.

    Args:
        host: the address to listen at.
        store: what is served.
        meter: counts what passes.
        key_of: the key that a peer shares with this server.
        on_failure: called with unexpected errors.
        open_channel: makes a channel of a socket.
        encryption: how connections are encrypted, if they are.
        room: limit of unauthenticated connections.
    """

    def __init__(
        self,
        host: str,
        store: Store,
        meter: Meter,
        key_of: KeyOf,
        on_failure: Callable[[Exception], None],
        *,
        open_channel: Callable[[socket.socket], Channel] = Channel,
        encryption: Encryption = PLAIN,
        room: int | None = None,
    ) -> None:
        self._open_channel = open_channel
        self._store, self._meter, self._on_failure = store, meter, on_failure
        self._lock = threading.Lock()
        self._served: dict[Served, None] = {}
        self._closed = False
        self._acceptor = Acceptor(host, key_of, self._admit, encryption=encryption, room=room)
        self.port: int = self._acceptor.port

    def close(self) -> None:
        """Accept no more connections and end every open one; the store must have been stopped before."""
        self._acceptor.close()
        with self._lock:
            self._closed = True
            threads = [served.thread for served in self._served]
            for served in self._served:
                served.channel.abort()
        for thread in threads:
            if thread is not None:
                thread.join(CLOSE_S)

    def _admit(self, connected: socket.socket, peer: Peer) -> None:
        """Serve it; of a peer that has too many the oldest ends: what it was for is over."""
        served = Served(self._open_channel(connected), peer)
        served.thread = threading.Thread(target=self._serve, args=(served,), name="session", daemon=True)
        with self._lock:
            if self._closed:
                served.channel.close()
                return
            of_one = [each for each in self._served if (each.peer.role, each.peer.rank) == (peer.role, peer.rank)]
            for oldest in of_one[: max(0, len(of_one) + 1 - MOST_OF_ONE)]:
                oldest.channel.abort()
            served.thread.start()
            self._served[served] = None

    def _serve(self, served: Served) -> None:
        try:
            Session(served.channel, served.peer, self._store, self._meter).run()
        except (Interrupted, Stopped) as end:
            log.debug("connection ended: %s", end)
        except TransportError as error:
            log.warning("connection ended: %s", error)
        except Exception as error:  # a sum may be lost: workers must not wait for this server for ever
            self._on_failure(error)
        finally:
            with self._lock:
                del self._served[served]
                served.channel.close()
