"""What a worker says of its exchanges with the servers."""

import pytest

from controlplane.protocol.messages import BlockExchanged, Exchanged
from tests.workers.driver import Cluster, job_spec
from workers.trainer.ledger import Ledger


def test_exchanges_are_reported_by_server_and_reset() -> None:
    ledger = Ledger()
    ledger.pulled(1, 100, 0.25)
    ledger.pulled(0, 60, 0.125)
    ledger.pushed(0, 60, 0.5)
    ledger.pushed(1, 100, 0.25)
    assert ledger.take() == [
        Exchanged(server=0, bytes=60, push_s=0.5, pull_s=0.125),
        Exchanged(server=1, bytes=100, push_s=0.25, pull_s=0.25),
    ]
    assert ledger.take() == []


def test_waiting_for_blocks_that_move_is_distinguished() -> None:
    times = iter([0.0, 10.0, 10.5])
    ledger = Ledger(lambda: next(times))
    with ledger.moving():
        ledger.held_by_move(0.25)
    assert (ledger.take_moving_s(), ledger.take_moving_s()) == (0.75, 0.0)


def test_probes_are_distinguished_and_once() -> None:
    ledger = Ledger()
    ledger.probed(3, 4096, 0.5)
    assert ledger.take() == [Exchanged(server=3, bytes=4096, push_s=0.5, pull_s=0.0, is_probe=True)]
    assert ledger.take() == []


def test_blocks_are_reported_by_exchange_and_once_a_second() -> None:
    times = iter([0.0, 0.5, 1.0, 1.5, 2.0])
    ledger = Ledger(lambda: next(times))
    for pull_s in (0.25, 0.75):
        ledger.saw_blocks(1, {7: 4096, 8: 64}, pulled={7: pull_s, 8: 0.5})
        ledger.saw_blocks(1, {7: 4096, 8: 64}, pushed={7: 0.125})
    assert ledger.take_blocks() == []
    told = BlockExchanged(block=7, server=1, bytes=4096, push_s=0.125, pull_s=0.5, exchanges=2)
    assert ledger.take_blocks() == [told], "8 was never pushed"
    ledger.saw_blocks(1, {7: 4096}, pulled={7: 1.0}, pushed={7: 1.0})
    ledger.saw_blocks(2, {7: 4096}, pulled={7: 0.5}, pushed={7: 0.25})
    assert ledger.take_blocks() == []
    assert ledger.take_blocks() == [BlockExchanged(block=7, server=2, bytes=4096, push_s=0.25, pull_s=0.5, exchanges=1)]


@pytest.mark.parametrize("pulled", [0, 50])
def test_an_exchange_that_was_broken_up_is_no_measurement(pulled: int) -> None:
    ledger = Ledger()
    ledger.pulled(0, pulled, 0.25)
    ledger.pushed(0, 100, 0.25)
    assert ledger.take() == []


def test_reports_carry_each_servers_bytes_and_times() -> None:
    spec = job_spec(workers=2, servers=2)
    with Cluster(spec, [[16, 16]] * 3, block_bytes=1024) as cluster:
        cluster.run()
        held = {index: sum((b.stop - b.start) * 4 for b in cluster.blocks if b.server == index) for index in range(2)}
        for report in cluster.reports(0):
            assert {each.server: each.bytes for each in report.exchanges} == held
            longest = max(each.push_s for each in report.exchanges)
            assert 0.0 < longest <= report.push_s + report.waiting_s


def test_reports_report_what_each_block_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.trainer.ledger.REPORT_EVERY_S", 0.0)
    with Cluster(job_spec(workers=2, servers=2), [[16, 16]] * 3, block_bytes=1024) as cluster:
        cluster.run()
        expected = [(block.index, block.server, (block.stop - block.start) * 4) for block in cluster.blocks]
        for report in cluster.reports(1):
            assert [(told.block, told.server, told.bytes) for told in report.blocks] == expected
            times = [(told.push_s, told.pull_s) for told in report.blocks]
            assert 0.0 < max(push_s for push_s, _ in times) <= report.iteration_s
            assert min(map(min, times)) >= 0.0
