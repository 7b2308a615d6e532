"""Mutated frames of ``bench fuzz`` to parameter servers: to other jobs' without a key, and to the fuzzer's own with a
key.

Without a key everything ends in the handshake. After a handshake as a worker or as another server of the same job,
frames reach the parameters: half of them have a valid header with invalid fields and payload.
"""

import socket
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec

from benchmarks.security.fuzzers import Sent
from benchmarks.security.mutations import mutated
from controlplane.protocol.orders import ServerAddress
from workers.transport.channel import Channel
from workers.transport.connection import Connection
from workers.transport.errors import TransportError
from workers.transport.frames import Header, Op, encode_frame_header
from workers.transport.handshake import Peer

HOST: Final = "127.0.0.1"

FRAMES: Final = 4
"""Frames of one connection to a server, which rejects them."""

REQUESTS: Final = 12
"""Requests of one authenticated connection, which ends at the first refusal."""

ENDED: Final = "ended by the server"

ANSWER_S: Final = 0.2
SESSION_ANSWER_S: Final = 0.002
"""Most requests that are not refused immediately wait for iterations that never come."""

RAW: Final = 0.3
"""Fraction of the requests that are mutated as bytes: most of these fail at the checksum of the header."""

NUMBERS: Final = (0, 1, 2, 3, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
SECONDS: Final = (0.0, -1.0, 1e308, float("inf"), float("nan"))
NUMBERED: Final = ("incarnation", "generation", "placement", "iteration", "block", "rank", "samples")


def fuzz_servers(ports: Sequence[int], seed: int, count: int, rate: float) -> Sent:
    """Send ``count`` mutated frames of the data plane to other jobs' parameter servers, without their keys."""
    random, sent, began = Random(seed), Sent(), time.monotonic()
    frames = [_data_frame(op, random) for op in Op]
    while sent.frames < count:
        try:
            with socket.create_connection((HOST, ports[sent.frames % len(ports)]), timeout=2.0) as called:
                called.settimeout(ANSWER_S)
                for _ in range(min(FRAMES, count - sent.frames)):
                    called.sendall(mutated(frames, random))
                    sent.frames += 1
                with suppress(TimeoutError):
                    while called.recv(65_536):
                        pass
                    sent.answers[ENDED] += 1
        except OSError as error:
            sent.frames += 1
            sent.answers[type(error).__name__] += 1
        time.sleep(max(0.0, began + sent.frames / rate - time.monotonic()))
    return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnServer:
    """A server of the fuzzer's own job, with the keys that a worker and another server share with it."""

    port: int
    worker: Peer
    worker_key: bytes
    server: Peer
    server_key: bytes
    block_bytes: int
    """Size of its only block, number 0."""


Request = Sequence[tuple[Header, bytes]]
"""One frame, or several that belong together."""


def requests(own: OwnServer, peer: Peer) -> list[Request]:
    """Each valid request that the server answers to this peer."""
    stamp = Header(op=Op.PUSH, generation=1, placement=1, rank=peer.rank, samples=1)
    values = bytes(own.block_bytes)

    def one(op: Op, payload: bytes = b"", **fields: Any) -> Request:
        return [(msgspec.structs.replace(stamp, op=op, **fields), payload)]

    if peer.role == "worker":
        return [one(Op.PUSH, values), one(Op.PULL), one(Op.PROBE, b"x" * 64), one(Op.FILL, values)]
    norms = msgspec.msgpack.encode([(0, 0, own.block_bytes // 4, 1.0)])
    stamp = msgspec.structs.replace(stamp, placement=2)  # blocks come for the placement after the present one
    given = one(Op.GIVE, msgspec.msgpack.encode(manifest(own.block_bytes // 4)))
    parts = [*one(Op.PART, values, checked=True), *one(Op.PART, bytes(8), checked=True)]
    return [[*given, *parts], one(Op.NORMS, norms)]


def manifest(elements: int) -> dict[str, Any]:
    """The manifest of a block of that size, without open iterations."""
    lists: dict[str, Any] = {name: [] for name in ("contributed", "expected", "before", "seen", "kept")}
    counts = dict.fromkeys(("start", "steps", "iteration", "samples", "count"), 0)
    arrays = [["values", "float32", [elements]], ["state.steps", "int64", []]]
    return counts | lists | {"is_free": False, "arrays": arrays}


def fuzz_sessions(own: OwnServer, seed: int, count: int, rate: float) -> Sent:
    """Send ``count`` mutated frames to the own server, after its handshake."""
    random, sent, began = Random(seed), Sent(), time.monotonic()
    while sent.frames < count:
        peer, key = random.choice(((own.worker, own.worker_key), (own.server, own.server_key)))
        try:
            with closing(_Session(own.port, peer, key)) as session:
                known = requests(own, peer)
                for _ in range(min(REQUESTS, count - sent.frames)):
                    session.send(changed(random.choice(known), random), sent)
                    answer = session.answer()
                    sent.answers[f"{peer.role}: {answer}"] += 1
                    if answer == ENDED:
                        break
        except (TransportError, OSError) as error:
            sent.frames += 1
            sent.answers[f"{peer.role}: {type(error).__name__}"] += 1
        time.sleep(max(0.0, began + sent.frames / rate - time.monotonic()))
    return sent


class _Session(Connection):
    """An authenticated connection that sends arbitrary frames."""

    def __init__(self, port: int, peer: Peer, key: bytes) -> None:
        super().__init__(
            ServerAddress(index=0, instance="own", host=HOST, port=port, key=key), peer, open_channel=self._hold
        )

    def _hold(self, connected: socket.socket) -> Channel:
        self._connected = connected
        return Channel(connected)

    def send(self, frame: bytes, sent: Sent) -> None:
        self._connected.settimeout(ANSWER_S)
        self._connected.sendall(frame)
        sent.frames += 1

    def answer(self) -> str:
        self._connected.settimeout(SESSION_ANSWER_S)
        answered = False
        try:
            while self._connected.recv(65_536):
                answered = True
        except TimeoutError:
            return "answered" if answered else "no answer"
        return ENDED


def changed(request: Request, random: Random) -> bytes:
    """A mutated request: changed as bytes, or in its fields and payloads, with valid lengths and checksums."""
    if random.random() < RAW:
        return mutated([b"".join(_frame(header, payload) for header, payload in request)], random)
    at = random.randrange(len(request))
    return b"".join(
        _frame(*(_altered(header, payload, random) if number == at else (header, payload)))
        for number, (header, payload) in enumerate(request)
    )


def _altered(header: Header, payload: bytes, random: Random) -> tuple[Header, bytes]:
    fields: dict[str, Any] = {}
    for _ in range(random.choice((0, 1, 1, 2))):
        fields[random.choice(NUMBERED)] = random.choice(NUMBERS)
    if random.random() < 0.1:
        fields["held_s"] = random.choice(SECONDS)
    if random.random() < 0.1:
        fields["op"] = random.choice(list(Op))
    if not fields or random.random() < 0.5:
        payload = mutated([payload], random)
    return msgspec.structs.replace(header, **fields), payload


def _frame(header: Header, payload: bytes) -> bytes:
    return encode_frame_header(header, payload) + payload


def _data_frame(op: Op, random: Random) -> bytes:
    return _frame(Header(op=op), random.randbytes(random.choice((0, 16, 64, 400))))
