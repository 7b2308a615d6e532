"""The scenarios that come with it: all possible, and what PSP's show by the way; headlines are in ``reproduction``."""

import pytest
from msgspec.structs import replace

from controlplane.protocol.spec import Stop
from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.outcome import Outcome
from controlplane.simulator.running import compare
from controlplane.simulator.scenario import check
from controlplane.simulator.scenarios import find, scenarios
from controlplane.simulator.tables import against_paper, ratio, rows


def run(name: str, *policies: str) -> dict[str, Outcome]:
    """A quarter of the scenario's 400 s: enough for orders, and cheap."""
    scenario = find(name)
    short = replace(scenario, spec=replace(scenario.spec, stop=Stop(seconds=100.0)))
    return {outcome.policy: outcome for outcome in compare(short, policies, seed=1)}


@pytest.mark.parametrize("name", scenarios())
def test_every_scenario_is_possible(name: str) -> None:
    check(find(name))


def test_a_scenario_that_does_not_exist_is_refused_with_those_close_to_it() -> None:
    with pytest.raises(ScenarioError, match=r"found 'psp-23', .* close to it: psp-32"):
        find("psp-23")


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


def test_tables_compare_with_the_baseline_and_the_paper() -> None:
    scenario = find("psp-32")
    outcomes = list(compare(scenario, ["bsp", "asp"]))
    assert [row[0] for row in rows(scenario, outcomes)] == ["bsp", "asp"]
    assert rows(scenario, outcomes)[0][2] == "1.00"
    asp, pbsp = scenario.paper
    assert ratio(scenario, asp, outcomes) == pytest.approx(outcomes[1].updates / outcomes[0].updates)
    assert ratio(scenario, pbsp, outcomes) is None
    assert against_paper(scenario, outcomes)[1].endswith("not run, or not reached here")
