"""Serves each authenticated connection of a worker or another server on a separate thread."""

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
"""Maximum number of connections per peer: one in use, and a few that are about to end."""


@dataclass(slots=True, eq=False)
class Served:
    """A connection and the thread that serves it."""

    channel: Channel
    peer: Peer
    thread: threading.Thread | None = None


class ThreadedListener:
    """A listening socket, from creation until ``close``; each authenticated connection is served by a thread.

    Args:
        host: the address to listen on.
        key_of: returns the key that a peer shares with this process.
        serve: serves one connection to its end, and may raise ``TransportError``.
        on_failure: called with unexpected errors.
        on_abort: called after a connection was given up, whose thread may wait for something other than data.
        open_channel: creates a channel for a socket.
        encryption: how connections are encrypted, if they are.
        max_pending: limit of unauthenticated connections.
    """

    def __init__(
        self,
        host: str,
        key_of: KeyOf,
        serve: Callable[[Channel, Peer], None],
        on_failure: Callable[[Exception], None],
        *,
        on_abort: Callable[[], None] = lambda: None,
        open_channel: Callable[[socket.socket], Channel] = Channel,
        encryption: Encryption = PLAIN,
        max_pending: int | None = None,
    ) -> None:
        self._open_channel = open_channel
        self._session, self._on_failure, self._on_abort = serve, on_failure, on_abort
        self._lock = threading.Lock()
        self._served: dict[Served, None] = {}
        self._closed = False
        self._acceptor = Acceptor(host, key_of, self._admit, encryption=encryption, max_pending=max_pending)
        self.port: int = self._acceptor.port

    def close(self) -> None:
        """Accept no more connections and close all open ones."""
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
        """Serve the connection; if a peer has too many, the oldest is closed, since it is obsolete."""
        served = Served(self._open_channel(connected), peer)
        served.thread = threading.Thread(target=self._serve, args=(served,), name="session", daemon=True)
        with self._lock:
            if self._closed:
                served.channel.close()
                return
            of_one = [each for each in self._served if (each.peer.role, each.peer.rank) == (peer.role, peer.rank)]
            excess = of_one[: max(0, len(of_one) + 1 - MOST_OF_ONE)]
            for oldest in excess:
                oldest.channel.abort()
            served.thread.start()
            self._served[served] = None
        if excess:
            self._on_abort()

    def _serve(self, served: Served) -> None:
        try:
            self._session(served.channel, served.peer)
        except (Interrupted, Stopped) as end:
            log.debug("connection ended: %s", end)
        except TransportError as error:
            log.warning("connection ended: %s", error)
        except Exception as error:  # a contribution may be lost: workers must not wait for this server forever
            self._on_failure(error)
        finally:
            with self._lock:
                del self._served[served]
                served.channel.close()


class Listener(ThreadedListener):
    """The listener of a parameter server; stop the store before closing it.

    Args:
        host: the address to listen on.
        store: the blocks to serve.
        meter: counts bytes and time.
        key_of: returns the key that a peer shares with this server.
        on_failure: called with unexpected errors.
        open_channel: creates a channel for a socket.
        encryption: how connections are encrypted, if they are.
        max_pending: limit of unauthenticated connections.
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
        max_pending: int | None = None,
    ) -> None:
        def serve(channel: Channel, peer: Peer) -> None:
            Session(channel, peer, store, meter).run()

        super().__init__(
            host,
            key_of,
            serve,
            on_failure,
            on_abort=store.poke,
            open_channel=open_channel,
            encryption=encryption,
            max_pending=max_pending,
        )
