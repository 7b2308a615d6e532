"""The scenarios that come with it: all possible, and the qualitative findings that they are there for."""

import pytest

from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.outcome import Outcome
from controlplane.simulator.running import compare
from controlplane.simulator.scenario import check
from controlplane.simulator.scenarios import find, scenarios
from controlplane.simulator.tables import against_paper, ratio, rows


def run(scenario: str, *policies: str, seed: int = 1) -> dict[str, Outcome]:
    return {outcome.policy: outcome for outcome in compare(find(scenario), policies, seed=seed)}


@pytest.mark.parametrize("name", scenarios())
def test_every_scenario_is_possible(name: str) -> None:
    check(find(name))


def test_a_scenario_that_does_not_exist_is_refused_with_those_close_to_it() -> None:
    with pytest.raises(ScenarioError, match=r"found 'psp-23', .* close to it: psp-32"):
        find("psp-23")


def test_four_unlike_gpus_come_to_the_papers_equilibrium() -> None:
    outcome = run("lb-bsp-four-gpus", "lb-bsp-gpu")["lb-bsp-gpu"]
    assert sum(outcome.shares) == 128
    assert [abs(share - paper) <= 2 for share, paper in zip(outcome.shares, (89, 21, 12, 6), strict=True)] == [True] * 4


def test_they_find_another_one_when_one_has_less_bandwidth() -> None:
    shares = run("lb-bsp-bandwidth-drop", "lb-bsp-gpu")["lb-bsp-gpu"].shares
    assert shares[1] < 15
    assert shares[0] > 92


def test_lb_bsp_needs_as_many_updates_as_bsp_and_less_time_than_asp_on_gpus() -> None:
    outcomes = run("lb-bsp-cluster-a", "bsp", "asp", "lb-bsp-gpu")
    bsp, asp, lb_bsp = outcomes["bsp"], outcomes["asp"], outcomes["lb-bsp-gpu"]
    assert lb_bsp.updates_to_target == bsp.updates_to_target
    assert lb_bsp.iteration_s < 0.5 * bsp.iteration_s
    # Section 5.2.1: a fast GPU takes more samples at hardly any cost.
    assert lb_bsp.iteration_s < 0.95 * asp.iteration_s


def test_the_gain_is_smaller_where_machines_are_less_unlike() -> None:
    gains = [
        outcomes["lb-bsp-gpu"].iteration_s / outcomes["bsp"].iteration_s
        for outcomes in (
            run("lb-bsp-cluster-a-resnet", "bsp", "lb-bsp-gpu"),
            run("lb-bsp-cluster-a-twelve", "bsp", "lb-bsp-gpu"),
        )
    ]
    assert gains[0] < gains[1] < 0.8


def test_the_gain_grows_with_the_level_of_heterogeneity() -> None:
    def gain(scenario: str) -> float:
        outcomes = run(scenario, "bsp", "regression")
        return outcomes["regression"].iteration_s / outcomes["bsp"].iteration_s

    homogeneous, level_2, level_3 = (gain(f"lb-bsp-{level}") for level in ("homogeneous", "hetero-l2", "hetero-l3"))
    assert homogeneous == pytest.approx(1.0, abs=0.06)
    assert level_3 < level_2 < 0.85


def test_asp_makes_more_than_twice_as_many_updates_as_bsp_and_pbsp_lies_between() -> None:
    outcomes = run("psp-32", "bsp", "asp", "pbsp", "pbsp-held")
    bsp, held, redrawn, asp = (outcomes[name].updates for name in ("bsp", "pbsp-held", "pbsp", "asp"))
    assert asp > 2 * bsp
    assert bsp < held < redrawn < asp


def test_larger_samples_are_slower_and_keep_workers_closer_together() -> None:
    outcomes = list(run("psp-32-sample-sizes", "pbsp-0", "pbsp-1", "pbsp-4", "pbsp-16").values())
    updates = [outcome.updates for outcome in outcomes]
    spread = [max(outcome.progress) - min(outcome.progress) for outcome in outcomes]
    assert updates == sorted(updates, reverse=True)
    assert spread == sorted(spread, reverse=True)


@pytest.mark.parametrize("where", ["multi-tenant", "physical"])
def test_a_bsp_is_sooner_at_the_target_with_shorter_iterations(where: str) -> None:
    outcomes = run(f"a-bsp-{where}-lr", "bsp", "a-bsp")
    bsp, a_bsp = outcomes["bsp"], outcomes["a-bsp"]
    assert a_bsp.iteration_s < bsp.iteration_s
    assert a_bsp.time_to_target_s is not None
    assert bsp.time_to_target_s is not None
    assert a_bsp.time_to_target_s < bsp.time_to_target_s / 1.4


def test_tables_compare_with_the_baseline_and_the_paper() -> None:
    scenario = find("psp-32")
    outcomes = list(compare(scenario, ["bsp", "asp"]))
    assert [row[0] for row in rows(scenario, outcomes)] == ["bsp", "asp"]
    assert rows(scenario, outcomes)[0][2] == "1.00"
    asp, pbsp = scenario.paper
    assert ratio(scenario, asp, outcomes) == pytest.approx(outcomes[1].updates / outcomes[0].updates)
    assert ratio(scenario, pbsp, outcomes) is None
    assert against_paper(scenario, outcomes)[1].endswith("not run, or not reached here")
