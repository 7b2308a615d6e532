"""The client side of an authenticated connection between two processes of a job."""

import socket
from collections.abc import Callable

from controlplane.protocol.orders import PeerAddress, ServerAddress
from workers.transport import streams
from workers.transport.channel import Channel
from workers.transport.encryption import PLAIN, Encryption, refusal
from workers.transport.errors import ConnectionClosed
from workers.transport.handshake import HANDSHAKE_S, Peer, greet_server

Address = ServerAddress | PeerAddress


class Connection:
    """A connection, authenticated on creation; used by one thread at a time."""

    def __init__(
        self,
        address: Address,
        peer: Peer,
        *,
        open_channel: Callable[[socket.socket], Channel] = Channel,
        encryption: Encryption = PLAIN,
        within_s: float = HANDSHAKE_S,
    ) -> None:
        """Connect and authenticate.

        Raises:
            Interrupted: if the other process cannot be reached.
            Unauthorised: if either side lacks the key, or a certificate of this job.
            Unencrypted: if the other process does not encrypt, but must.
        """
        try:
            connected = streams.connect(address.host, address.port, within_s=within_s)
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            raise ConnectionClosed(f"{address.where} cannot be reached: {error}") from error
        self._channel = open_channel(connected)
        try:
            greet_server(
                self._channel,
                address.key,
                peer,
                lambda encrypts: encryption.meet(self._channel, address, encrypts=encrypts),
                within_s=within_s,
            )
        except ConnectionClosed as end:
            self.close()
            if (refused := refusal(address.where, end.__cause__)) is not None:
                raise refused from end
            raise
        except BaseException:
            self.close()
            raise

    def abort(self) -> None:
        """Abort the connection from any thread."""
        self._channel.abort()

    def close(self) -> None:
        """Release the socket."""
        self._channel.close()
