"""Who is there: both ends prove that they hold the key of this worker and this server, and neither sends it.

Server: CHALLENGE(nonce). Worker: HELLO(rank; nonce, proof, instance). Server: WELCOME(proof). A proof covers both
nonces and the prover's role, so that none can be replayed or sent back to its maker. Without TLS an attacker on the
path can still alter what follows.
"""

import secrets
from collections.abc import Callable
from typing import NamedTuple

from controlplane.protocol import keys
from controlplane.protocol.orders import Role
from workers.transport.channel import Channel
from workers.transport.errors import BadHeader, Refused, Unauthorised
from workers.transport.frames import MAX_GREETING_BYTES, Header, Op

NONCE_BYTES = 32
PROOF_BYTES = 32
_PROOF_AT, _INSTANCE_AT = NONCE_BYTES, NONCE_BYTES + PROOF_BYTES
HANDSHAKE_S = 5.0


class Peer(NamedTuple):
    """One life of one worker, or of a server that hands blocks over."""

    rank: int
    """A server's index."""
    instance: str
    role: Role = "worker"


KeyOf = Callable[[Peer], bytes]
"""From whoever says hello to the key that it shares with this server."""


def greet_worker(channel: Channel, key_of: KeyOf) -> Peer:
    """The server's side: who the worker, or the other server, is.

    Raises:
        Unauthorised: if it does not hold the key of who it says it is.
        Interrupted: if it ends, or is silent for ``HANDSHAKE_S``, or does not speak this protocol.
    """
    channel.time_out(HANDSHAKE_S)
    challenge = secrets.token_bytes(NONCE_BYTES)
    channel.send(Header(op=Op.CHALLENGE), challenge)
    hello = _expect(channel, Op.HELLO, Op.PEER_HELLO)
    payload = channel.receive_bytes(hello)
    nonce, proof, instance = payload[:_PROOF_AT], payload[_PROOF_AT:_INSTANCE_AT], payload[_INSTANCE_AT:]
    role: Role = "worker" if hello.op is Op.HELLO else "server"
    peer = Peer(hello.rank, instance.decode(errors="replace"), role)
    key = key_of(peer)
    if not keys.matches(keys.proof(key, b"worker" + challenge + nonce), proof):
        channel.send(Header(op=Op.REFUSED), f"the credential does not fit this {role} and this server".encode())
        raise Unauthorised(f"{role} {peer.rank} ({peer.instance}) does not hold its key")
    channel.send(Header(op=Op.WELCOME), keys.proof(key, b"server" + nonce + challenge))
    channel.time_out(None)
    return peer


def greet_server(channel: Channel, key: bytes, peer: Peer) -> None:
    """The other side: prove to be ``peer``, and that the server is the one that shares ``key``.

    Raises:
        Unauthorised: if either proof fails.
        Interrupted: if the server ends, or is silent for ``HANDSHAKE_S``, or does not speak this protocol.
    """
    channel.time_out(HANDSHAKE_S)
    challenge = channel.receive_bytes(_expect(channel, Op.CHALLENGE))
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
    channel.time_out(None)


def _expect(channel: Channel, *ops: Op) -> Header:
    header = channel.receive(limit=MAX_GREETING_BYTES)
    if header.op is Op.REFUSED:
        raise Refused(channel.receive_bytes(header).decode(errors="replace"))
    if header.op not in ops:
        raise BadHeader(f"expected {' or '.join(op.name for op in ops)} in the handshake, found {header.op.name}")
    return header
