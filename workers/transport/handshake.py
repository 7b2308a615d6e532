"""Mutual authentication: both sides prove that they hold the key of this worker and server, and neither sends it.

Server: CHALLENGE(nonce). Worker: HELLO(rank; nonce, proof, instance). Server: WELCOME(proof). A proof covers both
nonces and the prover's role, so that it can be neither replayed nor reflected. Without TLS an attacker on the path can
still alter what follows; with TLS (``encryption``) the handshake is inside it, and a hello must name the instance of
the presented certificate.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from controlplane.protocol import keys
from controlplane.protocol.orders import Role
from workers.transport.channel import Channel
from workers.transport.errors import BadHeader, Refused, Unauthorised
from workers.transport.frames import (
    HEADER_BYTES,
    MAX_GREETING_BYTES,
    Header,
    Op,
    decode_header,
    encode_frame_header,
)

NONCE_BYTES = 32
PROOF_BYTES = 32
_PROOF_AT, _INSTANCE_AT = NONCE_BYTES, NONCE_BYTES + PROOF_BYTES
HANDSHAKE_S = 5.0
"""Time limit of the whole handshake, even if bytes arrive slowly."""


class Peer(NamedTuple):
    """One instance of a worker, or of a server that sends blocks."""

    rank: int
    """A server's index."""
    instance: str
    role: Role = "worker"


KeyOf = Callable[[Peer], bytes]
"""Returns the key that this server shares with the peer of a hello."""

Meet = Callable[[bool], None]
"""Called with whether the server encrypts: continues accordingly, or raises."""

ENCRYPT = encode_frame_header(Header(op=Op.ENCRYPT), b"")
"""The first frame of a server that encrypts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The server's last message of a handshake: accepted or refused."""

    frame: bytes
    peer: Peer | None = None
    refused: str = ""
    """The reason, for the server's log."""


class Greeting:
    """The server side of one handshake: fed with received bytes, so that it blocks no thread."""

    def __init__(self, key_of: KeyOf) -> None:
        self._key_of = key_of
        self._challenge = secrets.token_bytes(NONCE_BYTES)
        self._received = bytearray()
        self._hello: Header | None = None
        self.certified: frozenset[str] | None = None
        """Instances in the peer's certificate; None: the connection is not encrypted."""
        self.opening = _frame(Header(op=Op.CHALLENGE), self._challenge)
        """The first frame to send."""

    @property
    def due(self) -> int:
        """Number of missing bytes of the hello, as far as its length is known; later bytes are not part of it."""
        return HEADER_BYTES + (self._hello.length if self._hello else 0) - len(self._received)

    def take(self, data: bytes) -> Answer | None:
        """Add at most ``due`` bytes; return the answer once the hello is complete.

        Raises:
            BadHeader: if they are not a hello of this protocol.
        """
        self._received += data
        if self._hello is None and not self.due:
            self._hello = decode_header(self._received, limit=MAX_GREETING_BYTES)
            if self._hello.op not in (Op.HELLO, Op.PEER_HELLO):
                raise _unexpected(self._hello, Op.HELLO, Op.PEER_HELLO)
        return None if self._hello is None or self.due else self._answer(self._hello)

    def _answer(self, hello: Header) -> Answer:
        payload = bytes(self._received[HEADER_BYTES:])
        nonce, proof, instance = payload[:_PROOF_AT], payload[_PROOF_AT:_INSTANCE_AT], payload[_INSTANCE_AT:]
        role: Role = "worker" if hello.op is Op.HELLO else "server"
        peer = Peer(hello.rank, instance.decode(errors="replace"), role)
        key = self._key_of(peer)
        if not keys.matches(keys.proof(key, b"worker" + self._challenge + nonce), proof):
            reason = f"the credential does not fit this {role} and this server"
            refused = f"{role} {peer.rank} ({peer.instance}) does not hold its key"
            return Answer(frame=_frame(Header(op=Op.REFUSED), reason.encode()), refused=refused)
        if self.certified is not None and peer.instance not in self.certified:
            reason = f"the certificate is not that of this {role}"
            refused = f"{role} {peer.rank} ({peer.instance}) shows a certificate of {sorted(self.certified)}"
            return Answer(frame=_frame(Header(op=Op.REFUSED), reason.encode()), refused=refused)
        return Answer(
            frame=_frame(Header(op=Op.WELCOME), keys.proof(key, b"server" + nonce + self._challenge)), peer=peer
        )


def unencrypted(encrypts: bool) -> None:
    """Continues only with servers that do not encrypt."""
    if encrypts:
        raise BadHeader("the server encrypts, expected one that does not")


def greet_server(
    channel: Channel, key: bytes, peer: Peer, meet: Meet = unencrypted, *, within_s: float = HANDSHAKE_S
) -> None:
    """The client side: prove to be ``peer``, and verify that the server holds ``key``.

    Raises:
        Unauthorised: if either proof fails.
        Unencrypted: raised by ``meet``.
        Interrupted: if the server disconnects, exceeds the time limit, or does not use this protocol.
    """
    channel.end_after(within_s)
    opening = _expect(channel, Op.CHALLENGE, Op.ENCRYPT)
    meet(opening.op is Op.ENCRYPT)
    if opening.op is Op.ENCRYPT:
        opening = _expect(channel, Op.CHALLENGE)
    challenge = channel.receive_bytes(opening)
    nonce = secrets.token_bytes(NONCE_BYTES)
    proof = keys.proof(key, b"worker" + challenge + nonce)
    op = Op.HELLO if peer.role == "worker" else Op.PEER_HELLO
    channel.send(Header(op=op, rank=peer.rank), nonce + proof + peer.instance.encode())
    try:
        welcome = channel.receive_bytes(_expect(channel, Op.WELCOME))
    except Refused as refusal:
        raise Unauthorised(f"{peer.role} {peer.rank} ({peer.instance}): the server says {refusal}") from refusal
    if not keys.matches(keys.proof(key, b"server" + nonce + challenge), welcome):
        raise Unauthorised(f"{peer.role} {peer.rank}: the server does not hold the key that it should share with it")
    channel.end_after(None)


def _expect(channel: Channel, *ops: Op) -> Header:
    header = channel.receive(limit=MAX_GREETING_BYTES)
    if header.op is Op.REFUSED:
        raise Refused(channel.receive_bytes(header).decode(errors="replace"))
    if header.op not in ops:
        raise _unexpected(header, *ops)
    return header


def _unexpected(found: Header, *ops: Op) -> BadHeader:
    return BadHeader(f"expected {' or '.join(op.name for op in ops)} in the handshake, found {found.op.name}")


def _frame(header: Header, payload: bytes) -> bytes:
    return encode_frame_header(header, payload) + payload
