"""Push and pull of blocks through a parameter server, against a bare socket loop in the same run.

    manage.py bench transport [--rounds 6] [--json]

Four worker processes and one server process on loopback. *Bare* sends and receives the same bytes in the same order
over the same kind of sockets and threads, and does nothing with them. *Server* is the real one: frames, quorums of
all workers, aggregation, the optimiser's step, versions. Rounds of both alternate, so that other load on the machine
meets both; the figure is the median of the rounds' ratios. Bar: 0.8. CPU seconds per GB
are of all processes together and vary less than the throughput on a machine that does other things too.
"""

import argparse
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from statistics import median

import numpy as np

from benchmarks.dataplane.processes import spawning
from benchmarks.tables import say
from controlplane.protocol.keys import data_key
from controlplane.protocol.orders import ServerAddress
from workers.transport.client import ServerConnection
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer

BAR = 0.8
BLOCK_BYTES = 4 * 1024 * 1024
ELEMENTS = BLOCK_BYTES // 4
SERVER_KEY = b"benchmark"
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is moved: every worker pushes and pulls every block in every iteration of every round."""

    workers: int
    blocks: int
    iterations: int
    rounds: int

    @property
    def round_bytes(self) -> int:
        """Payload bytes of one round, both ways, over all workers."""
        return 2 * self.workers * self.blocks * self.iterations * BLOCK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What came out: medians over the rounds, in GB/s of payload; and the ratio of each round."""

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
class Kind:
    """One of the two things compared, with the control pipes of its processes."""

    name: str
    server: Connection
    workers: list[Connection]

    def run(self) -> Round:
        """Let all workers do one round, at the same time."""
        cpu_s = -self._server_cpu_s()
        began = time.monotonic()
        for worker in self.workers:
            worker.send(self.name)
        cpu_s += sum(worker.recv() for worker in self.workers)
        wall_s = time.monotonic() - began
        return Round(wall_s=wall_s, cpu_s=cpu_s + self._server_cpu_s())

    def _server_cpu_s(self) -> float:
        self.server.send("cpu")
        return float(self.server.recv())


def serve_bare(plan: Plan, control: Connection) -> None:
    """The server of the bare loop: receives an iteration's blocks, then sends its own; a thread per connection."""
    blocks = list(slices(np.zeros(plan.blocks * ELEMENTS, np.float32), plan.blocks).values())
    listening = socket.create_server((HOST, 0))
    control.send(listening.getsockname()[1])
    for _ in range(plan.workers):
        connected, _ = listening.accept()
        threading.Thread(target=_serve_bytes, args=(connected, blocks), daemon=True).start()
    _answer_cpu(control)


def serve_real(plan: Plan, control: Connection) -> None:
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
    listener = Listener(HOST, store, Meter(), lambda peer: data_key(SERVER_KEY, peer.rank, peer.instance), _fail)
    control.send(listener.port)
    _answer_cpu(control)
    store.stop()
    listener.close()


def work(plan: Plan, rank: int, bare_port: int, real_port: int, control: Connection) -> None:
    """One worker process: does a round whenever it is told which, and says when it is done."""
    gradient, parameters = np.ones(plan.blocks * ELEMENTS, np.float32), np.empty(plan.blocks * ELEMENTS, np.float32)
    pushed, pulled = slices(gradient, plan.blocks), slices(parameters, plan.blocks)
    bare = socket.create_connection((HOST, bare_port))
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    key = data_key(SERVER_KEY, rank, "w")
    address = ServerAddress(index=0, instance="s", host=HOST, port=real_port, key=key)
    real = ServerConnection(address, Peer(rank, "w"))
    version = 0
    control.send("ready")
    while (kind := control.recv()) != "end":
        cpu_s = time.process_time()
        for _ in range(plan.iterations):
            if kind == "bare":
                _bare_iteration(bare, pushed, pulled)
            else:
                stamp = Header(op=Op.PUSH, generation=1, placement=1, iteration=version, rank=rank, samples=16)
                real.push(dict(pushed), stamp)
                version += 1
                real.pull(dict(pulled), Header(op=Op.PULL, iteration=version, placement=1))
        control.send(time.process_time() - cpu_s)
    bare.close()
    real.close()


def measure(plan: Plan, tell: Callable[[str], None]) -> Figures:
    """Run all rounds and sum them up."""
    gigabytes = plan.round_bytes / 1e9
    rounds: list[tuple[Round, Round]] = []
    with _running(plan) as kinds:
        for kind in kinds:
            kind.run()  # memory is touched and threads are up before anything is timed
        for number in range(plan.rounds):
            bare, server = (kind.run() for kind in kinds)
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


@contextmanager
def _running(plan: Plan) -> Iterator[tuple["Kind", "Kind"]]:
    """Both servers and all workers, ready; ended afterwards."""
    with spawning() as start:
        servers = [start(serve_bare, plan), start(serve_real, plan)]
        ports = [server.recv() for server in servers]
        workers = [start(work, plan, rank, *ports) for rank in range(plan.workers)]
        for worker in workers:
            worker.recv()
        yield Kind("bare", servers[0], workers), Kind("server", servers[1], workers)


def _fail(error: Exception) -> None:
    raise error


def _answer_cpu(control: Connection) -> None:
    """A server process's answers until it is to end: the CPU seconds that it has used."""
    while control.recv() != "end":
        control.send(time.process_time())


def _serve_bytes(connected: socket.socket, blocks: list[memoryview]) -> None:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(BLOCK_BYTES))
    while receive(connected, buffer):
        for _ in blocks[1:]:
            receive(connected, buffer)
        for block in blocks:
            connected.sendall(block)


def _bare_iteration(bare: socket.socket, pushed: dict[int, memoryview], pulled: dict[int, memoryview]) -> None:
    for block in pushed.values():
        bare.sendall(block)
    for room in pulled.values():
        receive(bare, room)


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
