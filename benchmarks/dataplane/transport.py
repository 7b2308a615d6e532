"""Push and pull of blocks through a parameter server, against a bare socket loop in the same run.

    manage.py bench transport [--rounds 6] [--json]

Four worker processes and one server process on loopback. *Bare* sends and receives the same bytes in the same order
over the same kind of sockets and threads, and does nothing with them. *Server* is the real one: frames, quorums of
all workers, aggregation, the optimizer's step, versions. Rounds of both alternate, so that other load on the machine
meets both; the figure is the median of the rounds' ratios. Target: 0.8. CPU seconds per GB
are of all processes together and vary less than the throughput on a machine that does other things too.
"""

import argparse
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from operator import methodcaller
from statistics import median

import numpy as np

from benchmarks.dataplane.processes import spawning
from benchmarks.tables import say
from controlplane.protocol.keys import certificate_seed, data_key, process_key
from controlplane.protocol.orders import Role, ServerAddress
from controlplane.runtime.certificates import authority_of, certificate_of
from workers.transport.client import ServerConnection
from workers.transport.encryption import Encryption, Identity
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer

BAR = 0.8
BLOCK_BYTES = 4 * 1024 * 1024
ELEMENTS = BLOCK_BYTES // 4
SERVER_KEY = b"benchmark"
HOST = "127.0.0.1"
DONE = b"."
KINDS = ("bare", "server")
ENCRYPTED = "encrypted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The amount of data: every worker pushes and pulls every block in every iteration of every round."""

    workers: int
    blocks: int
    """Of each server."""
    iterations: int
    rounds: int

    @property
    def round_bytes(self) -> int:
        """Payload bytes of one round with one server, both ways, over all workers."""
        return 2 * self.workers * self.blocks * self.iterations * BLOCK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The result: medians over the rounds, in GB/s of payload; and the ratio of each round."""

    bare_gb_s: float
    server_gb_s: float
    bare_cpu_s_per_gb: float
    server_cpu_s_per_gb: float
    ratio: float
    bar: float
    reached: bool
    ratios: list[float]
    plan: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round: its length, and the CPU time of all its processes."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Running:
    """The control pipes of all processes: servers by their kind, and workers that are connected to all of them."""

    servers: Mapping[str, list[Connection]]
    workers: list[Connection]

    def run(self, kind: str, operation: str = "both") -> Round:
        """Let all workers do one round, at the same time."""
        cpu_s = -self._servers_cpu_s(kind)
        began = time.monotonic()
        for worker in self.workers:
            worker.send((kind, operation))
        cpu_s += sum(worker.recv() for worker in self.workers)
        wall_s = time.monotonic() - began
        return Round(wall_s=wall_s, cpu_s=cpu_s + self._servers_cpu_s(kind))

    def _servers_cpu_s(self, kind: str) -> float:
        for server in self.servers[kind]:
            server.send("cpu")
        return sum(float(server.recv()) for server in self.servers[kind])


@contextmanager
def running(plan: Plan, servers: int = 1) -> Iterator[Running]:
    """All servers and workers, ready; ended afterwards. Those of ``ENCRYPTED`` are the real ones over TLS."""
    with spawning() as start:
        kinds = {"bare": serve_bare, "server": serve_real, ENCRYPTED: partial(serve_real, encrypts=True)}
        listening = {kind: [start(serve, plan) for _ in range(servers)] for kind, serve in kinds.items()}
        ports = {kind: [server.recv() for server in ends] for kind, ends in listening.items()}
        workers = [start(work, plan, rank, ports) for rank in range(plan.workers)]
        for worker in workers:
            worker.recv()
        yield Running(listening, workers)


class Bare:
    """A worker's end of one bare connection. Each operation is announced by its initial, and ends with an answer."""

    def __init__(self, port: int, plan: Plan) -> None:
        self._socket = socket.create_connection((HOST, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._blocks = list(slices(np.ones(plan.blocks * ELEMENTS, np.float32), plan.blocks).values())

    def do(self, operation: str) -> None:
        """One iteration's transfer."""
        if operation != "pull":
            self._socket.sendall(b"w")
            for block in self._blocks:
                self._socket.sendall(block)
            receive(self._socket, memoryview(bytearray(1)))
        if operation != "push":
            self._socket.sendall(b"r")
            for block in self._blocks:
                receive(self._socket, block)


class Real:
    """A worker's end of one connection to a real server."""

    def __init__(self, port: int, plan: Plan, rank: int) -> None:
        key = data_key(SERVER_KEY, rank, "w")
        address = ServerAddress(index=0, instance="s", host=HOST, port=port, key=key)
        self._connection = ServerConnection(address, Peer(rank, "w"), encryption=Encryption(_identity("worker", "w")))
        self._pushed = slices(np.ones(plan.blocks * ELEMENTS, np.float32), plan.blocks)
        self._pulled = slices(np.empty(plan.blocks * ELEMENTS, np.float32), plan.blocks)
        self._rank, self._version = rank, 0

    def do(self, operation: str) -> None:
        """One iteration's transfer; a push is the one of the next iteration."""
        stamp = Header(op=Op.PUSH, generation=1, placement=1, iteration=self._version, rank=self._rank, samples=16)
        if operation != "pull":
            self._connection.push(dict(self._pushed), stamp)
            self._version += 1
        if operation != "push":
            self._connection.pull(
                dict(self._pulled), Header(op=Op.PULL, generation=1, iteration=self._version, placement=1)
            )


def serve_bare(plan: Plan, control: Connection) -> None:
    """Receives an iteration's blocks and answers, or sends its own; a thread per connection."""
    listening = socket.create_server((HOST, 0))
    control.send(listening.getsockname()[1])
    for _ in range(plan.workers):
        connected, _ = listening.accept()
        threading.Thread(target=_serve_bytes, args=(connected, plan.blocks), daemon=True).start()
    _answer_cpu(control)


def _identity(role: Role, instance: str) -> Identity:
    key = process_key(SERVER_KEY, role, 0, instance)
    certificate, authority = certificate_of(SERVER_KEY, key, role, instance), authority_of(SERVER_KEY)
    return Identity(certificate=certificate, seed=certificate_seed(key), authority=authority)


def serve_real(plan: Plan, control: Connection, *, encrypts: bool = False) -> None:
    """The real server, with orders that let all workers count."""
    import torch  # only this process needs it

    from controlplane.protocol.orders import Block, Member, ServerOrders
    from controlplane.protocol.spec import Optimizer
    from workers.server.listener import Listener
    from workers.server.meter import Meter
    from workers.server.store import Store
    from workers.workloads.rules import GradientRule

    torch.set_num_threads(1)
    store = Store(
        lambda: np.zeros(plan.blocks * ELEMENTS, dtype=np.float32), lambda values, _: GradientRule(values, Optimizer())
    )
    blocks = [Block(index=i, start=i * ELEMENTS, stop=(i + 1) * ELEMENTS, server=0) for i in range(plan.blocks)]
    members = [Member(rank=rank, instance="w", from_iteration=0) for rank in range(plan.workers)]
    store.take(
        ServerOrders(incarnation=0, generation=1, sequence=1, members=members, placement_version=1, blocks=blocks)
    )
    listener = Listener(
        HOST,
        store,
        Meter(),
        lambda peer: data_key(SERVER_KEY, peer.rank, peer.instance),
        _fail,
        encryption=Encryption(_identity("server", "s"), encrypts=encrypts),
    )
    control.send(listener.port)
    _answer_cpu(control)
    store.stop()
    listener.close()


def work(plan: Plan, rank: int, ports: dict[str, list[int]], control: Connection) -> None:
    """One worker process: does a round at each command, and reports its end."""
    ends: dict[str, list[Bare] | list[Real]] = {
        "bare": [Bare(port, plan) for port in ports["bare"]],
        **{kind: [Real(port, plan, rank) for port in ports[kind]] for kind in ("server", ENCRYPTED)},
    }
    with ThreadPoolExecutor(len(ports["bare"])) as pool:
        control.send("ready")
        while (order := control.recv()) != "end":
            kind, operation = order
            cpu_s = time.process_time()
            for _ in range(plan.iterations):
                list(pool.map(methodcaller("do", operation), ends[kind]))
            control.send(time.process_time() - cpu_s)


def measure(plan: Plan, tell: Callable[[str], None]) -> Figures:
    """Run all rounds and summarize them."""
    gigabytes = plan.round_bytes / 1e9
    rounds: list[tuple[Round, Round]] = []
    with running(plan) as processes:
        for kind in KINDS:
            processes.run(kind)  # touch memory and start threads before the measurement
        for number in range(plan.rounds):
            bare, server = (processes.run(kind) for kind in KINDS)
            rounds.append((bare, server))
            speeds = f"bare {gigabytes / bare.wall_s:.2f} GB/s, server {gigabytes / server.wall_s:.2f} GB/s"
            tell(f"round {number + 1} of {plan.rounds}: {speeds}")
    ratios = [round(bare.wall_s / server.wall_s, 3) for bare, server in rounds]
    return Figures(
        bare_gb_s=round(gigabytes / median(bare.wall_s for bare, _ in rounds), 3),
        server_gb_s=round(gigabytes / median(server.wall_s for _, server in rounds), 3),
        bare_cpu_s_per_gb=round(median(bare.cpu_s for bare, _ in rounds) / gigabytes, 3),
        server_cpu_s_per_gb=round(median(server.cpu_s for _, server in rounds) / gigabytes, 3),
        ratio=median(ratios),
        bar=BAR,
        reached=median(ratios) >= BAR,
        ratios=ratios,
        plan=asdict(plan),
    )


def _fail(error: Exception) -> None:
    raise error


def _answer_cpu(control: Connection) -> None:
    """A server process's answers until it is to end: the CPU seconds that it has used."""
    while control.recv() != "end":
        control.send(time.process_time())


def _serve_bytes(connected: socket.socket, blocks: int) -> None:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rooms = [memoryview(bytearray(BLOCK_BYTES)) for _ in range(blocks)]
    asked = memoryview(bytearray(1))
    while receive(connected, asked):
        for room in rooms:
            if asked[0] == ord("w"):
                receive(connected, room)
            else:
                connected.sendall(room)
        if asked[0] == ord("w"):
            connected.sendall(DONE)


def receive(connected: socket.socket, room: memoryview) -> bool:
    """Fill ``room``; False where the other end has ended."""
    while room:
        got = connected.recv_into(room, len(room), socket.MSG_WAITALL)
        if not got:
            return False
        room = room[got:]
    return True


def slices(vector: "np.ndarray[tuple[int], np.dtype[np.float32]]", blocks: int) -> dict[int, memoryview]:
    """The memory of each block, as bytes."""
    return {i: vector[i * ELEMENTS : (i + 1) * ELEMENTS].data.cast("B") for i in range(blocks)}


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; 0 if the bar is reached, else 1."""
    parser = argparse.ArgumentParser(description="Block push and pull through a server, against a bare socket loop.")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=8, help="blocks of 4 MiB")
    parser.add_argument("--iterations", type=int, default=5, help="per round")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    given = parser.parse_args(arguments)
    plan = Plan(workers=given.workers, blocks=given.blocks, iterations=given.iterations, rounds=given.rounds)
    figures = measure(plan, (lambda line: None) if given.json else (lambda line: say(line)))
    if given.json:
        say(json.dumps(asdict(figures)))
    else:
        verdict = "reached" if figures.reached else "missed"
        say(f"median ratio {figures.ratio:.2f}, bar {figures.bar}: {verdict}")
    return 0 if figures.reached else 1


if __name__ == "__main__":
    raise SystemExit(main())
