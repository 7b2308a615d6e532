"""The placement: sizes add up to the model, imbalance falls when blocks move, and both sides of a move are timed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.jobs.models import Decision, Job
from controlplane.protocol.messages import Exchanged
from controlplane.telemetry.models import Simulation
from frontend.figures.placement import ROOT, block_map, imbalance, server_exchanges
from frontend.figures.rows import Holding, Placements, View, Worth
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
    assert "traffic to a server per second" in figure["layout"]["meta"]["caption"]
    assert "Workers push 10 updates/s, each to every block." in figure["layout"]["meta"]["caption"]


def test_the_caption_reports_what_the_move_did_to_the_balance() -> None:
    caption = block_map(moved(), View())["layout"]["meta"]["caption"]
    assert "the largest load is 1.60 times the mean" in caption
    assert "Before the last move the largest load was 1.20 times the mean." in caption


def test_a_placement_that_never_moved_has_no_before() -> None:
    first = Placements(now=moved().now, before=(), version=1, policy="psld")
    figure = block_map(first, View(scale="before"))
    assert (figure["data"], figure["layout"]["meta"]["empty"]) == (
        [],
        "No block has been moved: this is the first placement.",
    )


def test_the_darkness_of_before_is_the_price_of_then() -> None:
    trace = block_map(moved(), View(scale="before"))["data"][0]
    colour = dict(zip(trace["ids"], trace["marker"]["colors"], strict=True))
    assert (colour["s0"], colour["s1"]) == (1.0, 10.0)


def caption(placed: Placements, when: str = "now") -> str:
    return str(server_exchanges(placed, View(scale=when))["layout"]["meta"]["caption"])


def test_the_server_that_paces_all_is_named_and_whether_it_became_faster() -> None:
    assert caption(moved()) == (
        "Workers exchange with all servers in parallel, so the slowest server sets the pace: s1, 40 ms."
        " Before the last move it was s1, 80 ms; now it is 50% shorter."
        " Right after the move it took 41 ms instead of 80 ms right before; 42 ms was predicted."
    )
    assert "before the last move s1, 80 ms. Now it is s1, 40 ms: 50% shorter." in caption(moved(), "before")


def test_a_change_within_the_noise_is_none() -> None:
    slower = replace(moved().before[1], push_s=0.021, pull_s=0.02)
    assert "now it is about as long." in caption(replace(moved(), before=(slower,), worth=None))
    assert "now it is 33% longer." in caption(replace(moved(), before=(replace(slower, push_s=0.01),), worth=None))


def test_now_and_before_have_one_scale_and_the_same_servers() -> None:
    """A server that gave all it had keeps its place."""
    alone = replace(moved(), now=moved().now[:1])
    now, before = (server_exchanges(alone, View(scale=when)) for when in ("now", "before"))
    assert [bar["x"] for bar in now["data"]] == [["s0"]] * 3
    assert [bar["x"] for bar in before["data"]] == [["s0", "s1"]] * 3
    assert before["data"][0]["y"] == [6.0, 40.0]
    for axis in ("xaxis", "yaxis", "yaxis2"):
        assert now["layout"][axis] == before["layout"][axis]
    assert now["layout"]["yaxis"]["range"] == [0.0, 84.8]


def test_where_it_is_not_known_what_exchanges_took_no_bar_is_drawn_but_reported_why() -> None:
    then = tuple(replace(each, push_s=None, pull_s=None) for each in moved().before)
    placed = replace(moved(), before=then, before_unknown="the job's log was deleted")
    figure = server_exchanges(placed, View(scale="before"))
    assert (figure["data"], figure["layout"]["meta"]["empty"]) == (
        [],
        "Exchange times before the last move are unknown: the job's log was deleted."
        " Right after the move it took 41 ms instead of 80 ms right before; 42 ms was predicted.",
    )
    assert (
        "No times are known: the job's log was deleted."
        in block_map(placed, View(scale="before"))["layout"]["meta"]["caption"]
    )


def test_of_a_first_placement_there_are_no_bars_of_before() -> None:
    figure = server_exchanges(replace(moved(), before=(), worth=None), View(scale="before"))
    assert figure["layout"]["meta"]["empty"] == "No block has been moved: this is the first placement."


@pytest.mark.django_db
def test_the_last_two_placements_are_now_and_before() -> None:
    found = placements(factories.demo_job(), View())
    assert [[index for index, _ in each.blocks] for each in found.now] == [[0, 1], [2]]
    assert [[index for index, _ in each.blocks] for each in found.before] == [[0], [1, 2]]
    assert (found.now[0].held_bytes, found.now[1].pull_s) == (6 << 20, 0.005)
    assert ([each.exchange_s for each in found.before], found.before_unknown) == (
        [None, None],
        "the job's log was deleted",
    )


def heard(job: Job, *exchanges: tuple[int, float], rank: int = 0, probe: bool = False) -> None:
    """A worker says that it exchanged so many MiB in so many seconds with s0, s1, ...: as long to push as to pull."""
    told = [
        Exchanged(server=server, bytes=mib << 20, push_s=seconds, pull_s=seconds, is_probe=probe)
        for server, (mib, seconds) in enumerate(exchanges)
    ]
    factories.make_exchanges(job, rank, told)


def caused(job: Job, version: int) -> None:
    """The entry of the log that placement ``version`` answers."""
    row = Decision.objects.get(job=job, kind="set-placement", payload__version=version)
    factories.make_entry(job, row.cause)


@pytest.mark.django_db
def test_each_placement_has_the_times_of_the_exchanges_that_were_made_under_it() -> None:
    """The first has 4 MiB on either server, the second 6 and 2; and a probe counts for none."""
    job = factories.demo_job()
    caused(job, 1)
    for _ in range(9):
        heard(job, (4, 0.1), (4, 0.1))
    for seconds in (0.01, 0.02, 0.03, 0.04, 9.0):
        heard(job, (4, 0.01), (4, seconds))
    heard(job, (4, 0.01), (4, 0.03), rank=1)
    heard(job, (4, 7.0), (4, 7.0), probe=True)
    caused(job, 2)
    heard(job, (4, 5.0), (4, 5.0))
    heard(job, (6, 0.012), (2, 0.015))
    found = placements(job, View())
    assert [each.exchange_s for each in found.before] == pytest.approx([0.02, 0.06])
    assert [each.exchange_s for each in found.now] == pytest.approx([0.024, 0.03])
    assert found.before_unknown == ""


@pytest.mark.django_db
def test_a_move_after_which_no_one_has_reported_has_no_times_yet() -> None:
    job = factories.demo_job()
    caused(job, 1)
    heard(job, (4, 0.01), (4, 0.04))
    caused(job, 2)
    found = placements(job, View())
    assert [each.exchange_s for each in found.now] == [None, None]
    assert "bars appear after workers have exchanged" in server_exchanges(found, View())["layout"]["meta"]["empty"]
    assert "before the last move s1, 80 ms." in caption(found, "before")


@pytest.mark.django_db
def test_a_placement_that_moves_nothing_is_no_move() -> None:
    job = factories.demo_job()
    last = Decision.objects.get(job=job, kind="set-placement", payload__version=2)
    factories.make_decision(job, 50, "set-placement", last.payload | {"version": 3}, reason="s2 can be given blocks")
    worth = {"version": 2, "before_s": 0.08, "predicted_s": None, "after_s": 0.04}
    factories.make_decision(job, 40, "measure-placement", worth)
    found = placements(job, View())
    assert (found.version, len(found.before[1].blocks)) == (3, 2)
    assert found.worth == Worth(before_s=0.08, predicted_s=None, after_s=0.04)


@pytest.mark.django_db
def test_of_a_simulated_run_it_is_reported_that_single_exchanges_are_not_kept() -> None:
    job = factories.demo_job()
    Job.objects.filter(pk=job.pk).update(
        simulation=Simulation.objects.create(scenario="demo", policies=["bsp"], seed=1)
    )
    job.refresh_from_db()
    assert "unknown: simulated runs keep only the latest exchanges." in caption(placements(job, View()))
