"""The data plane: transfers, what moving blocks costs, sums without servers; each beside a reference of the same run.

    manage.py bench dataplane [--rounds 5] [--transfers] [--json]

First, blocks through one and two parameter servers, against bare socket loops: push, pull, both.

Four worker processes on loopback, a thread per server in each. *Bare* moves the same bytes in the same order over the
same kind of sockets and threads, and does nothing with them. *Server* is the real one: frames, quorums of all workers,
aggregation, the optimiser's step, versions. Rounds of both alternate, so that other load on the machine meets both; a
figure is the median of the rounds' ratios. Bar: 0.8 for push and pull together, through one server and through two.

Then the pause of a change of placement beside a restart from a checkpoint, by real jobs (``bench training psld
--pause``), and a step without servers beside one of DistributedDataParallel (``bench allreduce``).
"""

import argparse
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from operator import methodcaller
from statistics import median
from typing import Any

import numpy as np

from benchmarks.dataplane import allreduce
from benchmarks.dataplane.processes import spawning
from benchmarks.dataplane.transport import (
    BAR,
    BLOCK_BYTES,
    ELEMENTS,
    HOST,
    SERVER_KEY,
    Plan,
    receive,
    serve_real,
    slices,
)
from benchmarks.tables import say
from benchmarks.training import psld
from controlplane.protocol.keys import data_key
from controlplane.protocol.orders import ServerAddress
from workers.transport.client import ServerConnection
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer

OPERATIONS = ("push", "pull", "both")
DONE = b"."


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One operation through so many servers; GB/s of payload over all workers, medians over the rounds."""

    servers: int
    operation: str
    bare_gb_s: float
    server_gb_s: float
    ratio: float
    ratios: list[float]


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
        self._connection = ServerConnection(address, Peer(rank, "w"))
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
    control.recv()


def work(plan: Plan, rank: int, ports: dict[str, list[int]], control: Connection) -> None:
    """One worker process: does a round whenever it is told which, and says when it is done."""
    ends: dict[str, list[Bare] | list[Real]] = {
        "bare": [Bare(port, plan) for port in ports["bare"]],
        "server": [Real(port, plan, rank) for port in ports["server"]],
    }
    with ThreadPoolExecutor(len(ports["bare"])) as pool:
        control.send("ready")
        while (order := control.recv()) != "end":
            kind, operation = order
            for _ in range(plan.iterations):
                list(pool.map(methodcaller("do", operation), ends[kind]))
            control.send("done")


def measure(plan: Plan, servers: int, tell: Callable[[str], None]) -> list[Row]:
    """All operations through so many servers. The blocks of ``plan`` are divided among them."""
    each = Plan(workers=plan.workers, blocks=plan.blocks // servers, iterations=plan.iterations, rounds=plan.rounds)
    rows = []
    with _running(each, servers) as workers:
        for operation in OPERATIONS:
            one_way = each.round_bytes * servers / 2e9
            gigabytes = one_way * (2 if operation == "both" else 1)
            for kind in ("bare", "server"):
                _round(workers, kind, operation)  # memory is touched and threads are up before anything is timed
            times = [[_round(workers, kind, operation) for kind in ("bare", "server")] for _ in range(plan.rounds)]
            ratios = [round(bare / server, 3) for bare, server in times]
            rows.append(
                Row(
                    servers=servers,
                    operation=operation,
                    bare_gb_s=round(gigabytes / median(bare for bare, _ in times), 3),
                    server_gb_s=round(gigabytes / median(server for _, server in times), 3),
                    ratio=round(median(ratios), 3),
                    ratios=ratios,
                )
            )
            tell(_line(rows[-1]))
    return rows


def _round(workers: list[Connection], kind: str, operation: str) -> float:
    began = time.monotonic()
    for worker in workers:
        worker.send((kind, operation))
    for worker in workers:
        worker.recv()
    return time.monotonic() - began


@contextmanager
def _running(plan: Plan, servers: int) -> Iterator[list[Connection]]:
    """All servers and workers, ready; ended afterwards."""
    with spawning() as start:
        listening = {
            kind: [start(serve, plan) for _ in range(servers)]
            for kind, serve in (("bare", serve_bare), ("server", serve_real))
        }
        ports = {kind: [server.recv() for server in ends] for kind, ends in listening.items()}
        workers = [start(work, plan, rank, ports) for rank in range(plan.workers)]
        for worker in workers:
            worker.recv()
        yield workers


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


def _line(row: Row) -> str:
    where = f"{row.servers} server{'s' if row.servers > 1 else ''}"
    return f"{where:9} {row.operation:5} bare {row.bare_gb_s:6.2f} GB/s, server {row.server_gb_s:6.2f}: {row.ratio:.2f}"


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; 0 if the bar is reached, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=8, help="blocks of 4 MiB, divided among the servers")
    parser.add_argument("--iterations", type=int, default=4, help="per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--transfers", action="store_true", help="only push and pull")
    parser.add_argument("--json", action="store_true", help="print a JSON document for each part and nothing else")
    given = parser.parse_args(arguments)
    plan = Plan(workers=given.workers, blocks=given.blocks, iterations=given.iterations, rounds=given.rounds)
    rows = [row for servers in (1, 2) for row in measure(plan, servers, _nothing if given.json else say)]
    missed = [row for row in rows if row.operation == "both" and row.ratio < BAR]
    document: dict[str, Any] = {"rows": [asdict(row) for row in rows], "bar": BAR, "reached": not missed}
    say(json.dumps(document) if given.json else f"push and pull, bar {BAR}: {'missed' if missed else 'reached'}")
    if given.transfers:
        return 1 if missed else 0
    told = ["--json"] if given.json else []
    return max(1 if missed else 0, psld.main(["--pause", "--iterations", "30", *told]), allreduce.main(told))


def _nothing(line: str) -> None:
    pass


if __name__ == "__main__":
    raise SystemExit(main())
