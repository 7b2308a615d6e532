"""A block moved in thought: bytes stay what they are, and times are those that placement policies predict."""

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.choices import PlacementRequest, Transfer
from controlplane.policies.catalogue.placement import PsldLptParameters
from controlplane.policies.placement import rebalancing
from controlplane.protocol.messages import Exchanged
from controlplane.protocol.orders import Block
from controlplane.telemetry.models import Simulation
from frontend.queries import moves
from frontend.queries.placement import updates_per_s
from tests.frontend import factories
from tests.frontend.test_pages import text_of

SERVERS = (0, 1, 2)
MIB = 1 << 20


@st.composite
def placed(draw: st.DrawFn) -> list[Block]:
    """Blocks of a few sizes, anywhere."""
    sizes = draw(st.lists(st.integers(1, 1 << 20), min_size=1, max_size=9))
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    return [
        Block(index=place, start=end - size, stop=end, server=draw(st.sampled_from(SERVERS)))
        for place, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]


def exchanged(*points: tuple[int, int, float]) -> list[Transfer]:
    """Of servers, bytes and seconds."""
    return [
        Transfer(rank=place, server=server, iteration=place, bytes=size, seconds=seconds)
        for place, (server, size, seconds) in enumerate(points)
    ]


MEASURED = exchanged((0, MIB, 0.012), (0, 2 * MIB, 0.022), (1, MIB, 0.03), (1, 3 * MIB, 0.07), (2, MIB, 0.5))


@given(placed(), st.data())
def test_only_two_servers_change_and_no_byte_is_lost(blocks: list[Block], data: st.DataObject) -> None:
    block, target = data.draw(st.sampled_from(blocks)), data.draw(st.sampled_from(SERVERS))
    found = moves.predict_move(blocks, SERVERS, [], block.index, target)
    size = (block.stop - block.start) * 4
    changed = {
        side.server: side.then_bytes - side.now_bytes for side in found.sides if side.then_bytes != side.now_bytes
    }
    assert changed == ({} if target == block.server else {block.server: -size, target: size})
    assert 1.0 <= found.then_imbalance + 1e-9 <= len(SERVERS) + 1e-6
    assert (found.now_s, found.then_s, found.saved) == (None, None, None)


@given(placed(), st.data())
def test_the_time_is_that_which_the_policies_predict(blocks: list[Block], data: st.DataObject) -> None:
    block, target = data.draw(st.sampled_from(blocks)), data.draw(st.sampled_from(SERVERS))
    found = moves.predict_move(blocks, SERVERS, MEASURED, block.index, target)
    then = [Block(index=b.index, start=b.start, stop=b.stop, server=target if b == block else b.server) for b in blocks]
    for expected, these in ((found.now_s, blocks), (found.then_s, then)):
        request = PlacementRequest(iteration=9, blocks=these, servers=list(SERVERS), initial=3)
        state = rebalancing.take_note(
            request, MEASURED, rebalancing.ServersState(), forgetting=PsldLptParameters().forgetting
        )
        assert expected == pytest.approx(rebalancing.present_s(request, rebalancing.reachable(request, state)))


def test_a_block_or_server_that_is_not_there_is_named() -> None:
    blocks = [Block(index=0, start=0, stop=9, server=0)]
    with pytest.raises(ValueError, match="move: found block 4, expected one from 0 to 0"):
        moves.predict_move(blocks, SERVERS, [], 4, 1)
    with pytest.raises(ValueError, match="to: found server 7, expected one of 0, 1, 2"):
        moves.predict_move(blocks, SERVERS, [], 0, 7)


@pytest.mark.django_db
def test_the_page_reports_what_a_move_would_come_to(viewer: Client) -> None:
    job = factories.demo_job()
    path = f"/jobs/{job.pk}/?tab=placement"
    assert "Choose a block and a server" in text_of(viewer, path)
    page = text_of(viewer, f"{path}&move=1&to=1")
    assert (
        "Block 1 (2 MiB) from s0 to s1: predicted exchange time 18 ms instead of 9 ms, 100% longer."
        " Load imbalance (largest server over the mean): 1.00 after the move, now 1.50." in page
    )
    assert "s1 2 MiB 4 MiB 9 ms 18 ms" in page
    assert "fitted per server on 2 exchanges" in page


@pytest.mark.django_db
def test_a_link_to_what_is_gone_reports_it_and_nonsense_is_refused(viewer: Client) -> None:
    path = f"/jobs/{factories.demo_job().pk}/?tab=placement"
    assert "to: found server 5, expected one of 0, 1" in text_of(viewer, f"{path}&move=1&to=5")
    assert "move: found 'x', expected the ID of a block" in text_of(viewer, f"{path}&move=x", 400)


@pytest.mark.django_db
def test_single_exchanges_of_workers_are_what_times_are_learned_from() -> None:
    job = factories.demo_job()
    for rank, (size, push_s) in enumerate([(2 * MIB, 0.01), (4 * MIB, 0.02)]):
        told = [Exchanged(server=server, bytes=size, push_s=push_s, pull_s=0.0) for server in (0, 1)]
        factories.make_exchanges(job, rank, told)
    blocks = moves.blocks_of(job)
    found = moves.move(job, blocks, [], 1, 1)
    assert (found.measured, found.now_s, found.then_s) == (4, pytest.approx(0.03), pytest.approx(0.02))


@pytest.mark.django_db
def test_updates_are_counted_over_the_last_iterations() -> None:
    job = factories.demo_job()
    assert updates_per_s(job) == pytest.approx(4 / 0.102, rel=0.01)
    row = Simulation.objects.create(scenario="demo", policies=["bsp"], seed=1)
    assert updates_per_s(factories.make_job(simulation=row)) is None
