"""What the training benches make of records, and that their jobs are accepted."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.training.cpu_traces import write_traces
from benchmarks.training.papers import EXPERIMENTS, table, untrained
from benchmarks.training.records import Record
from controlplane.jobs.validation import validated_spec
from controlplane.protocol.emulation import parse_emulation, read_trace


def record(label: str, iteration_s: float, *, accuracy: float = 0.95, losses: tuple[float, ...] = (2.0, 0.5)) -> Record:
    """Two workers, 40 iterations of 10 samples each, scored at the beginning and at iteration 20."""
    row = {k: {0: iteration_s, 1: iteration_s} for k in range(40)}
    series = {
        "iteration_s": row,
        "waiting_s": {k: {0: 0.0, 1: iteration_s / 2} for k in row},
        "compute_s": {k: {0: 0.1, 1: 0.05} for k in row},
        "samples": {k: {0: 10.0, 1: 10.0} for k in row},
    }
    scored = dict(zip((0, 20), losses, strict=False))
    return Record(label=label, series=series, accuracy={0: 0.1, 40: accuracy}, loss=scored, speeds={0: 100.0, 1: 100.0})


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_job_of_an_experiment_is_accepted(name: str) -> None:
    experiment = EXPERIMENTS[name]
    for choices in experiment.runs.values():
        spec = validated_spec({**experiment.job, "name": "x", "synchronization": dict(choices)})
        assert (spec.workers, spec.servers) == (len(experiment.speeds) or 4, experiment.servers)


def test_lb_bsp_is_judged_by_the_time_of_an_iteration_at_equal_accuracy() -> None:
    rows, failures = EXPERIMENTS["lb-bsp"].judge(
        [record("BSP", 0.2), record("fast", 0.1), record("off", 0.3, accuracy=0.9)]
    )
    assert [row["to_baseline"] for row in rows] == pytest.approx([1.0, 0.5, 1.5])
    assert failures == [
        "off: final accuracy is 5.00 points from BSP's",
        "off: 1.50 of BSP's iteration time, expected less than 1",
    ]


def test_a_bsp_is_judged_by_the_time_to_the_same_loss() -> None:
    runs = [record("BSP", 0.2), record("A-BSP", 0.1), record("never", 0.1, losses=(2.0, 1.0))]
    rows, failures = EXPERIMENTS["a-bsp"].judge(runs)
    assert [row["to_loss_s"] for row in rows] == [pytest.approx(4.0), pytest.approx(2.0), None]
    assert failures == ["never: never reached a loss of 0.6"]


def test_psp_is_judged_by_updates_in_the_same_time() -> None:
    rows, failures = EXPERIMENTS["psp"].judge([record("BSP", 0.2), record("ASP", 0.1), record("slow", 0.4)])
    assert [row["to_baseline"] for row in rows] == pytest.approx([1.0, 2.0, 0.5])
    assert failures == ["slow: fewer updates per second than BSP"]


def test_a_run_by_narx_counts_only_if_it_was_trained() -> None:
    experiment = EXPERIMENTS["lb-bsp-shared"]
    records = [record(label, 1.0) for label in experiment.runs]
    assert untrained(experiment, records) == ["LB-BSP, NARX: its predictor was never trained"]
    told = replace(records[-1], trained=("narx was trained",))
    assert untrained(experiment, [*records[:-1], told]) == []


def test_time_beyond_that_of_the_emulated_machines_is_an_overrun() -> None:
    assert record("x", 0.2).overruns == 0.0
    slow = record("x", 0.2)
    slow.series["compute_s"][39][0] = 0.2  # type: ignore[index]
    assert slow.overruns == pytest.approx(0.1 / (0.15 * 38 + 0.1))


def test_machines_that_follow_a_trace_overrun_where_they_report_it() -> None:
    assert replace(record("x", 0.2), speeds={}, reported_late=0.3).overruns == 0.3


def test_on_shared_machines_the_same_span_of_the_clock_is_compared() -> None:
    base, fast = record("BSP", 4.0), record("fast", 3.0)
    fast.series["iteration_s"][24].update({0: 9.0, 1: 9.0})  # type: ignore[attr-defined]  # begins at 72 s
    rows, failures = EXPERIMENTS["lb-bsp-shared"].judge([base, fast])
    assert failures == []
    assert [row["iteration_ms"] for row in rows] == pytest.approx([4000.0, 1000 * (14 * 3.0 + 9.0) / 15])


def test_who_makes_more_iterations_in_the_same_time_may_end_better_but_not_worse() -> None:
    runs = [record("BSP", 4.0), record("better", 3.0, accuracy=0.97), record("worse", 3.0, accuracy=0.93)]
    _, failures = EXPERIMENTS["lb-bsp-shared"].judge(runs)
    assert failures == ["worse: final accuracy is 2.00 points from BSP's"]


def test_traces_are_what_an_agent_reads_and_the_same_for_the_same_seed(tmp_path: Path) -> None:
    first, again = (write_traces(tmp_path, machines=4, seed=7) for _ in range(2))
    traces = [read_trace(path.read_text()) for path in first]
    assert [read_trace(path.read_text()) for path in again] == traces
    assert traces[0] != traces[1]
    for points in traces:
        assert parse_emulation({"trace": points}, "trace").trace is not None
        assert len({point["speed"] for point in points}) > 100


def test_the_table_shows_what_there_is() -> None:
    rows, _ = EXPERIMENTS["a-bsp"].judge([record("BSP", 0.2), record("A-BSP", 0.1, losses=(2.0, 1.0))])
    lines = table({"title": "A-BSP", "rows": rows, "notes": ["stated"]}).splitlines()
    assert [line.split()[0] for line in lines] == ["A-BSP", "in", "BSP", "A-BSP", "stated"]
    assert "4.0 s" in lines[2]
    assert lines[3].split()[3] == "-"
