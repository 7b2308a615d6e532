import pytest

from controlplane.core.barriers import Progress, Release
from controlplane.policies.barriers.bsp import Bsp
from controlplane.policies.data.shared import Shared
from controlplane.protocol.orders import Block
from tests.policies.cluster import resolve


def test_bsp_grants_its_lead_from_the_slowest_worker_on() -> None:
    releases = Bsp().release(Progress(done={0: 12, 1: 11, 2: 13}, first_iteration=0, lead=50))
    reason = (
        "all 3 workers have finished iteration 11; they may continue to 61, "
        "the servers hold each iteration until all have contributed"
    )
    assert releases == dict.fromkeys(range(3), Release(watermark=61, reason=reason))


def test_bsp_with_a_lead_of_one_is_a_barrier_by_itself() -> None:
    releases = Bsp().release(Progress(done={0: 12, 1: 11}, first_iteration=0, lead=1))
    assert {rank: release.watermark for rank, release in releases.items()} == {0: 12, 1: 12}


def test_a_worker_that_joins_later_takes_no_part_in_earlier_iterations() -> None:
    releases = Bsp().release(Progress(done={0: 39, 1: -1}, first_iteration=40, lead=5))
    assert {rank: release.watermark for rank, release in releases.items()} == {0: 44, 1: 44}
    assert releases[0].reason.startswith("2 workers begin at iteration 40; they may continue to 44")


def test_bsp_releases_no_one_where_no_one_counts() -> None:
    assert Bsp().release(Progress(done={}, first_iteration=0, lead=50)) == {}


def test_blocks_go_to_servers_in_turn() -> None:
    slices = [(0, 2**20), (2**20, 2**21), (2**21, 2**21 + 2**18)]
    blocks, reason = resolve("placement", "round-robin").place(slices, [4, 2])
    assert blocks == [
        Block(index=0, start=0, stop=2**20, server=2),
        Block(index=1, start=2**20, stop=2**21, server=4),
        Block(index=2, start=2**21, stop=2**21 + 2**18, server=2),
    ]
    assert reason == "3 blocks over 2 servers in turn: s2 5 MiB, s4 4 MiB"


def test_blocks_without_a_server_are_an_error() -> None:
    with pytest.raises(ValueError, match="1 blocks cannot be placed: found no server, expected at least one"):
        resolve("placement", "round-robin").place([(0, 8)], [])


def test_shared_data_are_ranges_without_gap_or_overlap_in_order_of_rank() -> None:
    assert Shared().offsets({3: 23, 0: 93, 2: 47, 1: 93}) == {0: 0, 1: 93, 2: 186, 3: 233}


def test_a_worker_without_a_share_has_an_empty_range() -> None:
    assert Shared().offsets({0: 0, 1: 5, 2: 0, 3: 7}) == {0: 0, 1: 0, 2: 5, 3: 5}
