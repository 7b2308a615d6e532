"""``manage.py reproduce --live``: a row for real, beside its twin."""

from pathlib import Path

import pytest

from controlplane.simulator.reproduction.live.results import deviation
from controlplane.telemetry.live_reproduction import read_results, read_runs
from tests.support.commands import running

pytestmark = pytest.mark.integration

ROW = "lb-bsp-shares"
"""One run of some forty seconds, whose figure does not depend on how busy this machine is otherwise."""


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
    assert facts.live.iteration_s >= 0.98 * facts.twin.iteration_s  # emulated time cannot be less
    assert deviation([facts.live.compute_s], [facts.twin.compute_s]) is not None
    assert f"{ROW}: live " in said
    assert f"| {ROW} (11) | Fig. 8 | shares settle at (89, 21, 12, 6)" in out.read_text()
