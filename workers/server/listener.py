"""Accepts connections of workers, lets in those that prove who they are, and gives each a thread."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

from workers.server.meter import Meter
from workers.server.session import Session
from workers.server.store import Store
from workers.transport.channel import Channel
from workers.transport.errors import Interrupted, Stopped, TransportError
from workers.transport.handshake import KeyOf, greet_worker

log = logging.getLogger(__name__)

BACKLOG = 256
CLOSE_S = 5.0
PAUSE_S = 0.1


class Listener:
    """The server's socket; listens from creation until ``close``. ``on_failure`` is told what should never happen."""

    def __init__(
        self,
        host: str,
        store: Store,
        meter: Meter,
        key_of: KeyOf,
        on_failure: Callable[[Exception], None],
        *,
        open_channel: Callable[[socket.socket], Channel] = Channel,
    ) -> None:
        self._open_channel = open_channel
        self._store, self._meter, self._key_of, self._on_failure = store, meter, key_of, on_failure
        self._lock = threading.Lock()
        self._channels: dict[Channel, threading.Thread] = {}
        self._closed = threading.Event()
        self._socket = socket.create_server((host, 0), backlog=BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="accept", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept nobody any more and end every connection; the store must have been stopped before."""
        with self._lock:
            self._closed.set()
            threads = [self._thread, *self._channels.values()]
            for channel in self._channels:
                channel.abort()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(CLOSE_S)
        self._socket.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connected, _ = self._socket.accept()
            except OSError as error:
                if not self._closed.wait(PAUSE_S):
                    log.warning("cannot accept a connection: %s", error)
                continue
            self._start(self._open_channel(connected))

    def _start(self, channel: Channel) -> None:
        thread = threading.Thread(target=self._serve, args=(channel,), name="session", daemon=True)
        with self._lock:
            if self._closed.is_set():
                channel.close()
                return
            self._channels[channel] = thread
            thread.start()

    def _serve(self, channel: Channel) -> None:
        try:
            peer = greet_worker(channel, self._key_of)
            Session(channel, peer, self._store, self._meter).run()
        except (Interrupted, Stopped) as end:
            log.debug("connection ended: %s", end)
        except TransportError as error:
            log.warning("connection ended: %s", error)
        except Exception as error:  # a sum may be lost: nobody is to wait for this server for ever
            self._on_failure(error)
        finally:
            with self._lock:
                del self._channels[channel]
                channel.close()
