"""The placement: sizes add up to the model, imbalance falls when blocks move, and colour is the price of a MiB."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.figures.placement import ROOT, block_map, imbalance, server_exchanges
from frontend.figures.rows import Holding, Placements, View
from frontend.queries.placement import placements
from tests.frontend import factories
from tests.frontend.rows import moved

sizes = st.lists(st.lists(st.integers(1, 1 << 22), min_size=1, max_size=8), min_size=1, max_size=6)


def holdings(blocks: list[list[int]]) -> tuple[Holding, ...]:
    return tuple(
        Holding(server=server, blocks=tuple(enumerate(each)), push_s=None, pull_s=None)
        for server, each in enumerate(blocks)
    )


@given(sizes)
def test_areas_of_blocks_add_up_to_their_servers_and_all_to_the_model(blocks: list[list[int]]) -> None:
    placed = Placements(now=holdings(blocks), before=(), version=1, policy="round-robin")
    trace = block_map(placed, View())["data"][0]
    areas = dict.fromkeys([name for name in trace["ids"] if "/" not in name and name != ROOT], 0.0)
    for parent, value in zip(trace["parents"], trace["values"], strict=True):
        if parent in areas:
            areas[parent] += value
    roots = {name: value for name, value in zip(trace["ids"], trace["values"], strict=True) if name in areas}
    assert areas == roots, "a map whose blocks add up to more than their server is not drawn"
    assert sum(roots.values()) * 2**20 == sum(map(sum, blocks))


@given(sizes)
def test_no_server_holds_less_than_nothing_over_the_mean(blocks: list[list[int]]) -> None:
    assert 1.0 <= imbalance(holdings(blocks)) + 1e-9 <= len(blocks) + 1e-6


def test_the_slower_server_is_the_darker_one() -> None:
    trace = block_map(moved(), View())["data"][0]
    colour = dict(zip(trace["ids"], trace["marker"]["colors"], strict=True))
    assert (colour["s0"], colour["s1"], colour["s1/2"]) == (1.0, 10.0, 10.0)


def test_the_fuller_server_has_the_more_traffic() -> None:
    figure = block_map(moved(), View(metric="traffic"))
    trace = figure["data"][0]
    colour = dict(zip(trace["ids"], trace["marker"]["colors"], strict=True))
    assert (colour["s0"], colour["s1"]) == (160.0, 40.0)
    assert trace["text"][trace["ids"].index("s1/2")] == ", 10 updates/s, 40 MiB/s each way"
    assert "what goes to a server per second" in figure["layout"]["meta"]["caption"]
    assert "Workers push 10 updates/s, each to every block." in figure["layout"]["meta"]["caption"]


def test_the_caption_says_what_the_move_did_to_the_balance() -> None:
    caption = block_map(moved(), View())["layout"]["meta"]["caption"]
    assert "the fullest holds 1.60 times the mean" in caption
    assert "Before the last move the fullest held 1.20 times the mean." in caption


def test_a_placement_that_never_moved_has_no_before() -> None:
    first = Placements(now=moved().now, before=(), version=1, policy="psld")
    figure = block_map(first, View(scale="before"))
    assert (figure["data"], figure["layout"]["meta"]["empty"]) == (
        [],
        "No block has moved: this is the first placement.",
    )


def test_the_server_that_paces_all_is_named() -> None:
    assert server_exchanges(moved(), View())["layout"]["meta"]["caption"].endswith("s1, 40 ms.")


@pytest.mark.django_db
def test_the_last_two_placements_are_now_and_before() -> None:
    found = placements(factories.demo_job(), View())
    assert [[index for index, _ in each.blocks] for each in found.now] == [[0, 1], [2]]
    assert [[index for index, _ in each.blocks] for each in found.before] == [[0], [1, 2]]
    assert (found.now[0].held_bytes, found.now[1].pull_s) == (6 << 20, 0.005)
