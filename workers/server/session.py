"""One connection of a worker or another server, on a separate thread: reads requests and responds to them in order."""

import numpy as np

from controlplane.protocol.orders import ELEMENT_BYTES
from workers.server.block import Block, Gone
from workers.server.block_transfer import read_manifest, unpack
from workers.server.contribution import Contribution
from workers.server.meter import Meter
from workers.server.quorum import Verdict
from workers.server.store import Store
from workers.transport.channel import Channel
from workers.transport.errors import BadHeader, Refused
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer

_ANSWERS = {
    Verdict.COUNT: Op.COUNTED,
    Verdict.REPEATED: Op.COUNTED,
    Verdict.STALE: Op.STALE,
    Verdict.LATE: Op.LATE,
}


class Session:
    """Serves ``peer`` until it disconnects, violates the protocol, or the server ends."""

    def __init__(self, channel: Channel, peer: Peer, store: Store, meter: Meter) -> None:
        self._channel, self._peer = channel, peer
        self._store, self._meter = store, meter
        self._buffers: dict[int, memoryview] = {}

    def run(self) -> None:
        """Respond to requests until an exception.

        Raises:
            Interrupted: when the connection ends or has invalid data.
            Refused: when a request can never be granted; the peer was sent the reason.
            Stopped: when the server ends.
        """
        while True:
            header = self._channel.receive()
            try:
                self._answer(header)
            except (Refused, BadHeader) as error:
                self._channel.send(Header(op=Op.REFUSED, block=header.block), str(error).encode())
                self._channel.drain()
                raise

    def _answer(self, header: Header) -> None:
        if self._peer.role == "server":
            self._take_over(header)
        elif header.op is Op.PUSH:
            self._push(header)
        elif header.op is Op.PULL and not header.length:
            self._pull(header)
        elif header.op is Op.FILL:
            self._fill(header)
        elif header.op is Op.PROBE:
            self._channel.send(Header(op=Op.PROBED), self._channel.receive_bytes(header))
        else:
            raise BadHeader(
                f"{header.op.name} with {header.length} bytes is not a request; PUSH, PULL, PROBE and FILL are"
            )

    def _push(self, header: Header) -> None:
        with self._meter:
            payload = self._room(header.length)
            self._channel.receive_payload(header, payload)
            self._meter.count(bytes_in=header.length)
        block = self._find(header)
        if block is None:
            self._buffers.pop(header.length, None)  # of any size: nothing here limits the size of that block
            self._channel.send(Header(op=Op.MOVED, block=header.block))
            return
        if header.length != block.block_bytes:
            raise Refused(f"push of block {header.block} has {header.length} bytes, the block {block.block_bytes}")
        contribution = self._contribution(header, payload)
        try:
            held_s = block.await_term(contribution, self._is_given_up)
            with self._meter:
                verdict, free = block.contribute(contribution, self._is_given_up)
        except Gone as gone:
            self._channel.send(Header(op=Op.MOVED, block=header.block, held_s=gone.held_s))
            return
        with self._meter:
            self._buffers[header.length] = memoryview(bytearray(header.length)) if free is None else free
            self._channel.send(Header(op=_ANSWERS[verdict], block=header.block, held_s=held_s))

    def _pull(self, header: Header) -> None:
        block = self._find(header)
        if block is None:
            self._channel.send(Header(op=Op.MOVED, block=header.block))
            return
        try:
            term = (header.incarnation, header.generation)
            snapshot, version, held_s = block.borrow(
                header.iteration, term, header.placement, given_up=self._is_given_up
            )
        except Gone as gone:
            self._channel.send(Header(op=Op.MOVED, block=header.block, held_s=gone.held_s))
            return
        try:
            with self._meter:
                reply = Header(
                    op=Op.VALUES, block=header.block, iteration=version, samples=snapshot.steps, held_s=held_s
                )
                self._meter.count(bytes_out=snapshot.values.nbytes)
                self._channel.send(reply, snapshot.values.data.cast("B"))
        finally:
            block.give_back(snapshot)

    def _fill(self, header: Header) -> None:
        """Restore a block from a worker's copy, since the server that held it was lost."""
        with self._meter:
            payload = memoryview(bytearray(header.length))
            self._channel.receive_payload(header, payload)
            self._meter.count(bytes_in=header.length)
        if header.length % ELEMENT_BYTES:
            raise Refused(
                f"a copy of block {header.block} has {header.length} bytes, which is not a whole number of values"
            )
        values = np.frombuffer(payload, dtype=np.float32)
        self._store.fill(
            header.block,
            header.placement,
            values,
            version=header.iteration,
            steps=header.samples,
            given_up=self._is_given_up,
        )
        self._channel.send(Header(op=Op.TAKEN, block=header.block))

    def _take_over(self, header: Header) -> None:
        """Receive a block from another server: its manifest, then its arrays; acknowledged once orders name it."""
        if header.op is Op.NORMS:
            self._store.receive_norms(self._peer.instance, self._channel.receive_bytes(header))
            self._channel.send(Header(op=Op.TAKEN))
            return
        if header.op is not Op.GIVE:
            raise BadHeader(f"{header.op.name} is not a request of a server; GIVE and NORMS are")
        manifest = read_manifest(self._channel.receive_bytes(header))
        arrays = []
        for size in manifest.sizes:
            part = self._channel.receive()
            if (part.op, part.block, part.length) != (Op.PART, header.block, size):
                raise BadHeader(f"{part.op.name} of block {part.block} with {part.length} bytes, PART of {size} is due")
            arrays.append(memoryview(bytearray(size)))
            self._channel.receive_payload(part, arrays[-1])
            self._meter.count(bytes_in=size)
        self._store.stage(header.block, header.placement, unpack(manifest, arrays), self._is_given_up)
        self._channel.send(Header(op=Op.TAKEN, block=header.block))

    def _find(self, header: Header) -> Block | None:
        if header.rank != self._peer.rank:
            raise Refused(f"request in the name of rank {header.rank} on the connection of rank {self._peer.rank}")
        return self._store.find(header.block, header.placement, self._is_given_up)

    def _is_given_up(self) -> bool:
        return self._channel.is_aborted

    def _contribution(self, header: Header, payload: memoryview) -> Contribution:
        return Contribution(
            term=(header.incarnation, header.generation),
            peer=self._peer,
            iteration=header.iteration,
            samples=header.samples,
            total=payload,
        )

    def _room(self, size: int) -> memoryview:
        """The connection's buffer for pushes of ``size`` bytes, reused for all of them."""
        return self._buffers.get(size) or self._buffers.setdefault(size, memoryview(bytearray(size)))
