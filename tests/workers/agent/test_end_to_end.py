"""Two servers and two workers train a real model, as processes of a real agent, on orders given by hand."""

import io
import signal
from pathlib import Path

import numpy as np
import pytest

from controlplane.protocol.keys import data_key
from controlplane.protocol.messages import (
    Evaluation,
    IterationReport,
    ProcessEnded,
    ProcessStarted,
    ServerHello,
    WorkerFinished,
    WorkerHello,
)
from controlplane.protocol.orders import (
    Block,
    Durable,
    Member,
    Orders,
    Placement,
    ProcessOrder,
    Role,
    ServerAddress,
    ServerOrders,
)
from tests.workers.agent.front import front
from tests.workers.agent.peer import ControlPeer, Session
from tests.workers.agent.test_cli import ENROLLED, join
from tests.workers.agent.values import SPEC, agent_orders
from tests.workers.agent.web import web
from workers.table import name_of

ITERATIONS = 3
WORKERS = SERVERS = 2
PARAMETERS = 650
"""Softmax regression on 8 x 8 digits: 64 x 10 weights and 10 biases, one block each."""
BLOCKS = [Block(index=0, start=0, stop=640, server=0), Block(index=1, start=640, stop=650, server=1)]


def ordered(role: Role, index: int) -> ProcessOrder:
    instance = f"{role[0]}{index}.0.1"
    key = bytes([len(role), index]) * 16
    return ProcessOrder(job=7, role=role, index=index, instance=instance, slot=index, key=key.hex(), spec=SPEC)


SERVER_ORDERS = [ordered("server", index) for index in range(SERVERS)]
WORKER_ORDERS = [ordered("worker", rank) for rank in range(WORKERS)]


def placement_for(rank: int, hellos: list[ServerHello]) -> Placement:
    """Where the servers are, with what proves this worker to each."""
    addresses = [
        ServerAddress(
            index=index,
            instance=order.instance,
            host=hello.host,
            port=hello.port,
            key=data_key(bytes.fromhex(order.key), rank, WORKER_ORDERS[rank].instance),
        )
        for index, (order, hello) in enumerate(zip(SERVER_ORDERS, hellos, strict=True))
    ]
    return Placement(incarnation=0, version=1, blocks=BLOCKS, servers=addresses)


def server_orders(index: int) -> ServerOrders:
    members = [Member(rank=rank, instance=WORKER_ORDERS[rank].instance, from_iteration=0) for rank in range(WORKERS)]
    return ServerOrders(
        incarnation=0,
        generation=1,
        sequence=1,
        members=members,
        placement_version=1,
        blocks=[block for block in BLOCKS if block.server == index],
    )


def worker_orders(rank: int) -> Orders:
    return Orders(
        incarnation=0,
        generation=1,
        sequence=1,
        share=8,
        offset=8 * rank,
        global_batch=16,
        origin_iteration=0,
        origin_position=0,
        share_from=0,
        share_until=ITERATIONS,
        watermark=ITERATIONS,
        placement_version=1,
        stop_at=ITERATIONS,
        evaluator=rank == 0,
    )


def begin(servers: list[Session], workers: list[Session]) -> None:
    """Answer everyone's hello with orders, as the engine does."""
    hellos = [session.await_one(ServerHello) for session in servers]
    for index, session in enumerate(servers):
        session.send(server_orders(index))
    for rank, session in enumerate(workers):
        assert session.await_one(WorkerHello).parameter_count == PARAMETERS
        session.send(placement_for(rank, hellos))
        session.send(worker_orders(rank))


def finish(workers: list[Session]) -> None:
    """Note that everyone is done, so that no one waits for it."""
    for session in workers:
        done: WorkerFinished = session.await_one(WorkerFinished)
        assert done.iteration == ITERATIONS
        session.send(Durable(number=done.number))


def reports(session: Session) -> list[IterationReport]:
    return [message for message in session.heard if isinstance(message, IterationReport)]


@pytest.mark.integration
def test_two_servers_and_two_workers_train_and_store_a_model(tmp_path: Path) -> None:
    with web(ENROLLED) as served, ControlPeer() as peer, front(peer.url, served.url) as url:
        agent = join(url, "t0ken", "--name", "box", "--slots", "2", "--server-slots", "2", state=tmp_path)
        try:
            agent_session = peer.await_session("/ws/agent")
            agent_session.send(agent_orders(1, *SERVER_ORDERS, *WORKER_ORDERS))
            servers = [peer.await_session(f"/ws/server/7/{index}") for index in range(SERVERS)]
            workers = [peer.await_session(f"/ws/worker/7/{rank}") for rank in range(WORKERS)]
            begin(servers, workers)
            finish(workers)
            for order in WORKER_ORDERS:
                ended = agent_session.await_one(ProcessEnded, process=name_of(order))
                assert ended.status == 0, ended.tail
            agent_session.send(agent_orders(2))
            for order in SERVER_ORDERS:
                ended = agent_session.await_one(ProcessEnded, process=name_of(order))
                assert ended.status == 0, ended.tail
        finally:
            agent.send_signal(signal.SIGTERM)
            _, errors = agent.communicate(timeout=60.0)
    assert agent.returncode == 0, errors
    assert sum(isinstance(message, ProcessStarted) for message in agent_session.heard) == WORKERS + SERVERS
    for rank, session in enumerate(workers):
        assert [(each.iteration, each.samples, each.position) for each in reports(session)] == [
            (iteration, 8, 16 * iteration + 8 * rank) for iteration in range(ITERATIONS)
        ]
    assert [each.iteration for each in workers[0].heard if isinstance(each, Evaluation)][-1] == ITERATIONS
    assert model_in(served.requests[-1]) == PARAMETERS
    assert all(order.key not in errors for order in [*SERVER_ORDERS, *WORKER_ORDERS])


def model_in(request: tuple[str, str, dict[str, str], bytes]) -> int:
    """How many parameters were uploaded."""
    method, path, headers, body = request
    assert (method, path) == ("PUT", "/api/v1/jobs/7/model")
    assert headers["Authorization"] == f"Process worker:0:w0.0.1:{WORKER_ORDERS[0].key}"
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return sum(arrays[name].size for name in arrays)
