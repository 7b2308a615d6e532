"""Rows that real processes measure: what they declare, the jobs that they become, and the document of fixed results."""

import os
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from controlplane.protocol.spec import parse_spec
from controlplane.simulator.errors import ScenarioError, SimulationError
from controlplane.simulator.machines import CpuMachine, GpuMachine, SlowPeriod
from controlplane.simulator.network import Link, LinkChange, ServerChange, ServerSpec
from controlplane.simulator.reproduction.claims import Played, Run
from controlplane.simulator.reproduction.live.declared import FIGURES, OMITTED, ROWS
from controlplane.simulator.reproduction.live.document import document, figure_deviation, is_outside
from controlplane.simulator.reproduction.live.emulation import job_of
from controlplane.simulator.reproduction.live.psp import AT_EQUAL_UPDATES, CHANGE, RATES, RATIO
from controlplane.simulator.reproduction.live.results import (
    LiveRun,
    LiveStored,
    deviation,
    is_complete,
    is_current,
    result_of,
    run_digest,
)
from controlplane.simulator.reproduction.live.rows import LiveRow, to_its_loss
from controlplane.simulator.scenarios import find
from controlplane.telemetry.live_reproduction import read_results, simulated_figures
from tests.simulator.reproduction.support import DOCS, played, results

GOLDEN = Path(__file__).parent / "live.md"
RUNS = sorted({run for row in ROWS for run in row.runs}, key=str)
ASKED = (
    *("LB-BSP, time and iterations on GPUs", "LB-BSP, time and iterations on CPUs"),
    *("LB-BSP, naive and weighted aggregation", "LB-BSP, oscillating links", "LB-BSP, overhead (5.6)"),
    *("LB-BSP, federation (Fig. 13)", "LB-BSP, partition manager", "A-BSP, eight jobs"),
    *("PSP, Fig. 8", "PSP, Fig. 11", "PSP, Fig. 13"),
    *("PSLD, Fig. 11", "PSLD, Fig. 14", "PSLD, Fig. 15", "PSLD, Fig. 16", "PSLD, Fig. 17", "PSLD, Fig. 18"),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_is_a_headline_that_is_simulated_too(row: LiveRow) -> None:
    claim = row.claim
    assert claim.runs
    assert claim.measure is not None
    assert row.note
    for run in claim.runs:
        assert run.policy in find(run.scenario).policies


def test_every_figure_that_is_to_be_measured_live_has_its_rows() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert set(ASKED) <= FIGURES.keys() | OMITTED.keys()
    assert {name for rows in FIGURES.values() for name in rows} <= set(names)
    (times,) = (row for row in ROWS if row.name == "a-bsp-time")
    jobs = {run.scenario.removeprefix("live-a-bsp-") for run in times.runs}
    assert jobs | {"dnn"} == {"lr", "sparse-lr", "svm", "lasso", "ridge", "k-means", "mf", "dnn"}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.scenario} {run.policy}")
def test_every_run_is_a_job_that_can_be_submitted(run: Run) -> None:
    scenario = find(run.scenario)
    spec = parse_spec(job_of(scenario, run.policy, 3))
    assert spec.emulate is not None
    assert (len(spec.emulate), spec.seed) == (scenario.spec.workers, 3)
    assert spec.synchronization == scenario.policies[run.policy]


def test_machines_and_links_are_emulated_as_they_are_simulated() -> None:
    job = parse_spec(job_of(find("live-lb-bsp-oscillating"), "bsp", 0))
    assert job.emulate is not None
    testee = job.emulate[0]
    assert testee is not None
    assert testee.link is not None
    assert [testee.link.at(iteration) for iteration in (0, 25, 50)] == [10e6, 10e6 / 3, 10e6]
    machine = find("live-lb-bsp-oscillating").machines[0].machine
    assert isinstance(machine, GpuMachine)
    assert testee.launch_s == machine.launch_s
    assert testee.samples_per_second == pytest.approx(1 / machine.seconds_per_sample)
    servers = parse_spec(job_of(find("live-psld-transient"), "psld", 0)).emulate_servers
    assert servers is not None
    assert [servers[3].at(iteration) for iteration in (0, 15, 40)] == [16e6, 1.6e6, 16e6]
    grown = {
        name: parse_spec(job_of(find("live-psld-scale-out"), name, 0)).emulate_servers for name in ("psld", "mxnet")
    }
    assert {name: len(links or []) for name, links in grown.items()} == {"psld": 6, "mxnet": 4}  # two that may be added


@pytest.mark.parametrize(
    "change",
    [
        {"machine": CpuMachine(samples_per_second=1.0, slow=(SlowPeriod(times=2.0),))},
        {"link": Link(latency_s=0.1)},
        {"link": Link(bytes_per_s=1e6, changes=(LinkChange(bytes_per_s=1e5, from_s=3.0),))},
    ],
)
def test_what_cannot_be_emulated_is_refused(change: dict[str, object]) -> None:
    scenario = find("live-a-bsp-lr")
    groups = (replace(scenario.groups[0], **change), *scenario.groups[1:])
    with pytest.raises(ScenarioError, match="to emulate"):
        job_of(replace(scenario, groups=groups), "bsp", 0)
    server = ServerSpec(bytes_per_s=1e6, changes=(ServerChange(from_s=1.0, bytes_per_s=1e5),))
    with pytest.raises(ScenarioError, match="changes by iteration, to emulate"):
        job_of(replace(scenario, servers=server), "bsp", 0)


def test_a_row_that_is_no_headline_is_refused() -> None:
    row = replace_says(ROWS[0], "nothing that a paper says")
    with pytest.raises(SimulationError, match="found 0 rows that begin with 'nothing that a paper says', not 1"):
        _ = row.headline


def replace_says(row: LiveRow, says: str) -> LiveRow:
    return LiveRow(name=row.name, paper=row.paper, says=says, runs=row.runs, note=row.note)


def with_losses(one: Played, losses: list[tuple[float, int, float]], updates: int) -> Played:
    return replace(one, losses=losses, outcome=replace(one.outcome, updates=updates))


def test_time_and_updates_to_the_baselines_loss_are_compared() -> None:
    one = played(Run("live-a-bsp-lr", "bsp"), 0)
    base = with_losses(one, [(0.0, 0, 1.0), (30.0, 30, 0.5), (40.0, 40, 0.4)], updates=40)
    mine = with_losses(one, [(0.0, 0, 1.0), (10.0, 33, 0.6), (12.0, 36, 0.5)], updates=40)
    never = with_losses(one, [(0.0, 0, 1.0)], updates=40)
    assert to_its_loss("seconds")([mine, base]) == pytest.approx(0.4)
    assert to_its_loss("updates")([mine, base]) == pytest.approx(1.2)
    assert to_its_loss("seconds")([never, base]) is None
    assert to_its_loss("seconds")([mine, never]) is None


def test_a_job_that_has_not_learned_has_no_time_to_its_loss() -> None:
    """Its loss at the target is what the other run begins with, or the one that it began with itself."""
    one = played(Run("live-a-bsp-lr", "bsp"), 0)
    worse = with_losses(one, [(0.0, 0, 0.7), (30.0, 30, 1.3), (40.0, 40, 1.2)], updates=40)
    mine = with_losses(one, [(0.0, 0, 0.7), (10.0, 33, 1.1), (12.0, 36, 1.0)], updates=40)
    begun_worse = with_losses(one, [(0.0, 0, 2.0), (30.0, 30, 1.3), (40.0, 40, 1.2)], updates=40)
    for base in (worse, begun_worse):
        for of in ("seconds", "updates"):
            assert to_its_loss(of)([mine, base]) is None


def test_accuracies_and_updates_are_compared_in_the_same_time() -> None:
    """However much later a job ends, after what was granted to its workers."""
    one = played(Run("live-psp-slowness-2", "asp"), 0)
    curve = [(10.0, 8, 0.2), (40.0, 32, 0.6), (58.0, 46, 0.8), (70.0, 56, 0.9)]
    mine = replace(one, curve=curve, outcome=replace(one.outcome, updates=90, seconds=60.0))
    its = replace(one, curve=[(35.0, 4, 0.5)], outcome=replace(one.outcome, updates=60, seconds=80.0))
    assert CHANGE([mine, its]) == pytest.approx(0.7 - 0.5)
    assert RATIO([mine, its]) == pytest.approx(1.4)
    assert RATES([mine, its]) == pytest.approx(2.0)
    assert CHANGE([mine, replace(one, curve=[(20.0, 4, 0.5)])]) is None
    assert AT_EQUAL_UPDATES([mine, replace(one, curve=[(9.0, 4, 0.1), (35.0, 46, 0.5)])]) == pytest.approx(1.6 / 0.9)


def test_a_figure_that_is_part_of_something_is_compared_as_a_whole() -> None:
    made = {
        run.digest: run for run in (slower(Run("live-lb-bsp-cpus", policy), 1.0) for policy in ("lb-bsp-cpu", "asp"))
    }
    (row,) = (row for row in ROWS if row.name == "lb-bsp-cpu-asp")
    result = result_of(row, range(1), made, twins(row))
    (figure,) = result.twin
    assert figure is not None
    other = replace(result, row=replace(result.row, values=[figure + 0.0202]))
    assert figure_deviation(row, other) == pytest.approx(0.0202 / (1.0 + figure))
    assert not is_outside(row, other)
    assert is_outside(row, replace(result, row=replace(result.row, values=[figure + 0.12])))


def test_a_deviation_is_a_part_of_the_twins_figure() -> None:
    assert deviation([1.1], [1.0]) == pytest.approx(0.1)
    assert deviation([-0.3], [-0.2]) == pytest.approx(-0.5)
    assert deviation([0.0], [0.0]) == 0.0
    assert deviation([0.1], [0.0]) is None
    assert deviation([None], [1.0]) is None
    assert deviation([-0.005], [-0.003], least=0.16) == pytest.approx(-0.002 / 0.16)
    assert deviation([0.3], [0.2], least=0.16) == pytest.approx(0.5)


def slower(run: Run, times: float) -> LiveRun:
    """A run like its twin, but for iterations that are so many times as long."""
    twin = played(run, 0)
    outcome = replace(twin.outcome, iteration_s=twin.outcome.iteration_s * times, seconds=twin.outcome.seconds * times)
    return LiveRun(
        digest=run_digest(run, 0),
        scenario=run.scenario,
        policy=run.policy,
        seed=0,
        live=replace(twin, outcome=outcome),
        at="2026-01-02 03:04",
        load=1.5,
        cores=2,
        overran=0.012,
        code="0123456789ab",
    )


def test_the_document_of_fixed_results_is_as_it_was() -> None:
    """To write it anew: PACELINE_WRITE_GOLDENS=1."""
    rows = [
        row for row in ROWS if row.name in ("lb-bsp-federation", "lb-bsp-overhead", "psld-transient", "psp-accuracy")
    ]
    made = [
        slower(Run("live-lb-bsp-federation", policy), times)
        for policy, times in (("lb-bsp-federated", 1.2), ("bsp", 1.0))
    ]
    made[1] = replace(made[1], code="ba9876543210")
    made.append(slower(Run("live-lb-bsp-gpus", "lb-bsp-gpu"), 1.02))
    runs = {run.digest: run for run in made}
    whole = {row.name: result_of(row, range(1), runs, twins(row)) for row in rows if is_complete(row, range(1), runs)}
    assert set(whole) == {"lb-bsp-federation", "lb-bsp-overhead"}
    stored = msgspec.json.decode(msgspec.json.encode(LiveStored(first_seed=0, seeds=1, rows=whole)), type=LiveStored)
    text = document(rows, stored, {"lb-bsp-federation": 0.78})
    if os.environ.get("PACELINE_WRITE_GOLDENS"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
    assert "1 within" not in text
    assert "Of 1 with a twin, 0 are within 10% of it" in text
    assert "So in 1 of the rows, marked †, runs of different code" in text


def twins(row: LiveRow) -> dict[str, Played]:
    return {run_digest(run, 0): played(run, 0) for run in row.runs}


def test_the_stored_document_is_what_its_results_and_the_code_make() -> None:
    """Else: manage.py reproduce --live --only NAME measures a row again; without one it makes the document anew."""
    stored = read_results(DOCS / "reproduction-live.json")
    assert stored is not None
    outdated = [
        row.name
        for row in ROWS
        if row.name in stored.rows and not is_current(row.claim, stored.rows[row.name], stored.range)
    ]
    assert outdated == []
    assert {row.name for row in ROWS} == stored.rows.keys()
    assert (DOCS / "reproduction-live.md").read_text() == document(ROWS, stored, simulated_figures(results()))


def test_a_run_is_the_same_run_as_long_as_its_job_and_what_is_read_of_it_are() -> None:
    """However its twin is simulated."""
    digests = {run_digest(run, seed) for run in RUNS for seed in (0, 1)}
    assert len(digests) == 2 * len(RUNS)
    bsp, scaled = Run("live-lb-bsp-federation", "bsp"), Run("live-lb-bsp-federation-tau", "bsp")
    assert run_digest(bsp, 0) != run_digest(scaled, 0)
    assert run_digest(Run(bsp.scenario, bsp.policy, to_target=True), 0) == run_digest(bsp, 0)
