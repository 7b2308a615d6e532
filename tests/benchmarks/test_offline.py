"""Small seeded runs of the benchmarks in virtual time, and the bars that they hold their figures against."""

import math
from dataclasses import replace

import pytest

from benchmarks.offline import autopilot, autopilot_scenarios, energy, guard, overhead, overlay


def test_an_autopilots_job_reaches_its_target_under_every_policy_that_is_compared() -> None:
    row = autopilot.job(1, 0, 60)
    assert row.bsp_s > 0
    assert row.best[1] <= row.bsp_s
    assert row.autopilot_s is not None
    assert row.of_bsp == pytest.approx(row.autopilot_s / row.bsp_s)
    assert row.looks >= 1


def test_a_bar_of_the_autopilot_is_missed_by_one_job_that_is_slow() -> None:
    good = autopilot.Row(
        title="even",
        seed=1,
        bsp_s=100.0,
        fixed_s={"bsp": 100.0, "lb-bsp": 80.0, "never": None},
        autopilot_s=82.0,
        switches=["lb-bsp"],
        looks=1,
        returns=0,
        iterations=50,
    )
    assert autopilot.missed([good, good, good]) == []
    slow, never = replace(good, autopilot_s=110.0), replace(good, autopilot_s=None)
    assert [line.split()[0] for line in autopilot.missed([good, good, slow])] == ["worst", "worst"]
    assert autopilot.missed([never]) != []
    assert never.of_bsp == math.inf


def test_the_guard_finds_that_a_job_is_harmed_and_takes_the_change_back() -> None:
    row = guard.row(3, 6)
    assert row is not None
    assert row.excess > guard.HARMFUL
    assert (row.verdict, row.at <= guard.WITHIN) == ("harmful", True)
    assert row.guarded_excess < row.excess


def test_the_guard_lets_a_job_be_that_is_not_harmed() -> None:
    row = guard.row(3, 3)
    assert row is not None
    assert row.excess < guard.HARMFUL
    assert row.verdict == "harmless"


def test_a_harm_that_is_found_late_or_not_at_all_misses_the_guards_bar() -> None:
    found = guard.Row(title="a", excess=0.5, guarded_excess=0.0, verdict="harmful", at=10, reason="")
    late, never = replace(found, at=guard.WITHIN + 1), replace(found, verdict="harmless")
    assert guard.missed([found], []) == []
    assert len(guard.missed([late, never], [])) == 2
    assert guard.missed([], [found] * guard.MOST_FALSE) == []
    assert len(guard.missed([], [found] * (guard.MOST_FALSE + 1))) == 1


def test_shares_by_energy_use_less_of_it_and_none_takes_longer_than_its_slack() -> None:
    rows = energy.measure(energy.CLUSTERS[0], 1, 40)
    base, *others = rows
    assert (base.objective, base.time, base.joules, base.cost) == ("time", 1.0, 1.0, 1.0)
    assert energy.missed(rows) == []
    assert all(row.joules < 1.0 for row in others if row.objective == "energy")
    assert energy.missed([replace(others[0], time=1.5, joules=1.2, cost=1.2)]) != []


def test_estimates_of_several_rings_keep_their_law_with_any_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """One ring of a hundred nodes need not: with seed 7 5 % of its estimates are off by 81 %."""
    assert overlay.rings([100], range(7, 8)) != []
    for first in (1, 7):
        assert overlay.rings([100], range(first, first + overlay.RINGS)) == []
    assert overlay.main(["--nodes", "100", "--seconds", "6", "--rings", "10"]) == 0
    assert "| 100 | 4, held |" in capsys.readouterr().out


def test_the_engines_time_is_a_small_part_of_a_simulated_iteration() -> None:
    found = overhead.measure(32, iterations=5, warm_up=5, policy="ema", seed=0)
    assert (found.workers, found.iterations) == (32, 5)
    assert 0.0 < found.part < overhead.BAR


def test_of_twelve_jobs_of_the_autopilot_each_problem_is_trained_by_four() -> None:
    drawn = [autopilot_scenarios.scenario(5, number, iterations=60) for number in range(autopilot.SCENARIOS)]
    trained = [scenario.numerics.problem for scenario in drawn if scenario.numerics is not None]
    assert {problem: trained.count(problem) for problem in trained} == dict.fromkeys(autopilot_scenarios.PROBLEMS, 4)
    assert [scenario.spec.workload.name for scenario in drawn] == trained
