"""``manage.py reproduce --live``: a row for real, beside its twin."""

from pathlib import Path

import pytest

from controlplane.simulator.reproduction.live.results import deviation
from controlplane.simulator.scenario import Scenario
from controlplane.simulator.scenarios import find
from controlplane.telemetry.live_reproduction import read_results, read_runs
from tests.support.commands import running

pytestmark = [pytest.mark.integration, pytest.mark.thorough]

ROW = "lb-bsp-shares"
"""One run of some forty seconds, whose figure does not depend on how busy this machine is otherwise."""


def shortest_iteration_s(scenario: Scenario) -> float:
    """What the emulated GPUs take for one global batch by the best of all shares, which no policy can undercut."""
    machines = [group.machine for group in scenario.machines]
    due_s = sorted(
        machine.launch_s + max(samples, machine.saturation) * machine.seconds_per_sample
        for machine in machines
        for samples in range(1, scenario.spec.global_batch + 1)
    )
    return due_s[scenario.spec.global_batch - 1]


@pytest.mark.timeout(240)
def test_a_row_is_measured_by_real_processes_and_by_the_simulator(tmp_path: Path) -> None:
    kept, out = tmp_path / "runs.jsonl", tmp_path / "live.md"
    options = ["--live", "--only", ROW, "--keep", str(kept), "--output", str(out)]
    with running(tmp_path, "reproduce", *options) as command:
        assert command.end(seconds=220) == 0, command.said()
        said = command.said()
    (run,) = read_runs(kept).values()
    assert run.live.outcome.iterations == 60
    assert sum(run.live.outcome.shares) == 128
    stored = read_results(out.with_suffix(".json"))
    assert stored is not None
    result = stored.rows[ROW]
    (facts,) = result.runs
    assert facts.live.iteration_s >= 0.98 * shortest_iteration_s(find(run.scenario))  # emulated time cannot be less
    assert deviation([facts.live.compute_s], [facts.twin.compute_s]) is not None
    assert f"{ROW}: live " in said
    assert f"| {ROW} (11) | Fig. 8 | shares settle at (89, 21, 12, 6)" in out.read_text()
