"""The life of a server process, on a thread."""

from dataclasses import dataclass
from typing import Any

import pytest

from controlplane.protocol.messages import IterationReport, ServerHello, ServerReport
from controlplane.protocol.orders import Block, Member, ProcessOrder, ServerOrders
from tests.workers.driver import Cluster, MemoryServerLink, Process, job_spec
from workers.server.main import serve
from workers.workloads.rules import GradientRule


def test_the_hello_reports_where_it_listens_and_what_it_could_hold() -> None:
    with Cluster(job_spec(workers=1), [[16]]) as cluster:
        hello = cluster.servers[0].link.await_said(ServerHello)[0]
        assert (hello.number, hello.host, hello.tensor_sizes) == (1, "127.0.0.1", [640, 10])


def test_the_hello_names_the_announced_address_where_there_is_one() -> None:
    link = MemoryServerLink()
    order = ProcessOrder(
        job=1, role="server", index=0, instance="s0", slot=0, key="00", spec=job_spec(workers=1), emulate=None
    )
    server = Process(order, link, lambda: serve(order, link, host="127.0.0.1", announced="gate.example"))
    hello = link.await_said(ServerHello)[0]
    link.stop()
    server.join()
    assert hello.host == "gate.example"


def test_a_server_without_orders_reports_that_it_did_nothing() -> None:
    with Cluster(job_spec(workers=1), [[16]]) as cluster:
        report = cluster.servers[0].link.await_said(ServerReport)[0]
        assert (report.iteration, report.bytes_in, report.bytes_out, report.missing) == (0, 0, 0, [])


def test_orders_that_cannot_be_followed_end_the_server_with_the_reason() -> None:
    with Cluster(job_spec(workers=1), [[16]] * 2) as cluster:
        cluster.withheld = {(0, 1)}
        cluster.start()
        cluster.worker(0).link.await_said(IterationReport)
        (server,) = cluster.servers
        beyond = ServerOrders(
            incarnation=0,
            generation=1,
            sequence=cluster.sequence + 1,
            members=[Member(rank=0, instance="w0", from_iteration=0)],
            placement_version=2,
            blocks=[*cluster.blocks, Block(index=len(cluster.blocks), start=0, stop=10, server=0)],
        )
        server.link.give(beyond)
        with pytest.raises(ValueError, match="no other server has handed them over"):
            server.join()


@dataclass
class Broken:
    """A rule that fails where no one expects it."""

    values: Any

    def apply(self, total: Any, samples: int, scale: float = 1.0) -> None:
        raise ArithmeticError(f"no step from {samples} samples")


def test_an_error_in_the_update_rule_ends_the_server_instead_of_holding_everyone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GradientRule, "apply", Broken.apply)
    with Cluster(job_spec(workers=2), [[8, 8]]) as cluster:
        cluster.start()
        with pytest.raises(ArithmeticError, match="no step from 16 samples"):
            cluster.servers[0].join()
