"""A connected socket that sends and receives frames, encrypted or not. One thread uses it; any thread may abort it."""

import contextlib
import socket
import ssl
import time
import zlib
from collections.abc import Callable

from workers.transport.errors import BadPayload, ConnectionClosed, Oversized
from workers.transport.frames import (
    HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    Buffer,
    Header,
    decode_header,
    encode_frame_header,
)

DRAIN_S = 1.0
"""How long a refused peer may be silent before the connection is closed."""

RECORD_BYTES = 16 * 1024
"""Size of a TLS record: a smaller frame is sent as one record."""

LEAST_S = 0.001
"""A timeout of 0 would mean non-blocking."""


class Channel:
    """Sends and receives whole frames; a payload is received directly into its destination."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._is_encrypted = isinstance(connected, ssl.SSLSocket)
        self._header = memoryview(bytearray(HEADER_BYTES))
        self._deadline: float | None = None
        self.is_aborted = False
        """Whether this side has aborted it."""

    def encrypt(self, wrap: Callable[[socket.socket], ssl.SSLSocket]) -> None:
        """Replace the socket by the result of ``wrap``. Raises what that raises."""
        self._socket = wrap(self._socket)
        self._is_encrypted = True

    def end_after(self, seconds: float | None) -> None:
        """Data not received within this time counts as a closed connection, even if bytes arrive slowly; None: no
        limit.
        """
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._socket.settimeout(seconds)

    def send(self, header: Header, payload: Buffer = b"") -> None:
        """Send one frame; fills in the header's length, and its payload's checksum if it is to be checked.

        Raises:
            ConnectionClosed: if the peer is gone.
        """
        front = encode_frame_header(header, payload)
        try:
            if self._is_encrypted:
                self._send_encrypted(front, payload)
                return
            sent = self._socket.sendmsg((front, payload))
            if sent < HEADER_BYTES:
                self._socket.sendall(front[sent:])
                sent = HEADER_BYTES
            if sent < HEADER_BYTES + len(payload):
                self._socket.sendall(memoryview(payload)[sent - HEADER_BYTES :])
        except OSError as error:
            raise ConnectionClosed(f"peer gone while sending {header.op.name}: {error}") from error

    def receive(self, *, limit: int = MAX_PAYLOAD_BYTES) -> Header:
        """Return the header of the next frame; its payload must be received next, if it announces one.

        Raises:
            ConnectionClosed: if the peer is gone.
            BadHeader: if the bytes are not a frame, or announce more than ``limit`` bytes.
        """
        self._fill(self._header)
        return decode_header(self._header, limit=limit)

    def receive_payload(self, header: Header, into: memoryview) -> None:
        """Receive the payload that ``header`` announced into the beginning of ``into`` (bytes).

        Raises:
            Oversized: if it does not fit.
            BadPayload: if it has a checksum and does not match it.
        """
        if header.length > len(into):
            raise Oversized(f"{header.op.name} of block {header.block} has {header.length} bytes, room for {len(into)}")
        payload = into[: header.length]
        self._fill(payload)
        if header.checked and zlib.crc32(payload) != header.payload_checksum:
            raise BadPayload(f"{header.op.name} of block {header.block} does not match its checksum")

    def receive_bytes(self, header: Header) -> bytes:
        """The payload that ``header`` announced, as new bytes; for small ones."""
        payload = bytearray(header.length)
        self.receive_payload(header, memoryview(payload))
        return bytes(payload)

    def drain(self) -> None:
        """Send nothing more, and read until the peer closes too: closing earlier could discard the last data sent."""
        with contextlib.suppress(OSError):
            self._shut(socket.SHUT_WR)
            self._socket.settimeout(DRAIN_S)
            scratch = bytearray(65536)
            while socket.socket.recv_into(self._socket, scratch):
                pass

    def abort(self) -> None:
        """End the connection from any thread: a thread that is blocked on it gets ``ConnectionClosed``."""
        self.is_aborted = True
        with contextlib.suppress(OSError):
            self._shut(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the socket; only for the thread that uses it."""
        self.abort()
        self._socket.close()

    def _shut(self, how: int) -> None:
        """Shut down one direction of the connection below TLS.

        ``SSLSocket.shutdown`` would first discard the TLS state: data that another thread then sends would be
        unencrypted.
        """
        socket.socket.shutdown(self._socket, how)

    def _send_encrypted(self, front: bytes, payload: Buffer) -> None:
        if len(payload) + len(front) <= RECORD_BYTES:
            self._socket.sendall(front + payload)
        else:
            self._socket.sendall(front)
            self._socket.sendall(payload)

    def _fill(self, view: memoryview) -> None:
        """Receive exactly ``len(view)`` bytes."""
        flags = 0 if self._is_encrypted else socket.MSG_WAITALL
        while view:
            try:
                if self._deadline is not None:
                    self._socket.settimeout(max(LEAST_S, self._deadline - time.monotonic()))
                got = self._socket.recv_into(view, len(view), flags)
            except OSError as error:
                raise ConnectionClosed(f"peer gone while receiving: {error}") from error
            if not got:
                raise ConnectionClosed(f"peer ended the connection with {len(view)} bytes not yet received")
            view = view[got:]
