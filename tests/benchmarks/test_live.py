"""What the benches make of their measurements; and short runs of them, for counts and shape, not for their bars."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from benchmarks.database import history, ingest
from benchmarks.live import fleet, jobs
from benchmarks.live.counters import Counts, Divided, divided
from benchmarks.live.decisions import Path as Measured
from benchmarks.live.decisions import Result, summed_up, table
from benchmarks.live.load_processes import Stretch, parts_of
from benchmarks.live.simulated_jobs import Counted
from benchmarks.live.steady_load import SteadyLoad, Waits, summary
from benchmarks.live.timing import Figures, Timing, figures
from benchmarks.live.usage import Meter, Usage, cpu_s, growth, memory_mb, processes_of
from controlplane.runtime.embedded.control_plane import ControlPlane, parts

PROCESSES = ["redis", *parts(ControlPlane(folder=Path()))]
MANAGE = Path(__file__).resolve().parents[2] / "manage.py"


def measured(
    p50_ms: float, messages_per_s: float, *, rows: int = 100, cost_us: float = 200.0, ingest_us: float = 30.0
) -> Measured:
    cost = {"web": cost_us - ingest_us, "history": ingest_us}
    return Measured(
        figures=Figures(connections=1, p50_ms=p50_ms, p99_ms=9.0, messages_per_s=messages_per_s, cost_us=cost),
        counted=counted(rows),
        divided=Divided(
            messages_per_append=8.0,
            messages_per_commit=16.0,
            frames_per_message=1.5,
            wake_ups_per_s={"web": 900.0},
            wake_up_us={"web": 40.0},
        ),
    )


def counted(rows: int = 100) -> Counted:
    return Counted(reports_sent=100, report_rows=rows, decision_rows=5, copied_after_s=0.5)


def waits(*, p95_ms: float = 20.0, slowest_ms: float = 30.0, rate: float = 96.0, share: float = 0.004) -> Waits:
    return Waits(
        seconds=10.0,
        reports_per_s=rate,
        p50_ms=5.0,
        p95_ms=p95_ms,
        p99_ms=99.0,
        slowest_job_p95_ms=slowest_ms,
        coordination_share=share,
    )


def result(
    *,
    p50_ms: float = 0.25,
    messages_per_s: float = 5_000.0,
    rows: int = 100,
    cost_us: float = 200.0,
    ingest: float = 30,
) -> Result:
    return Result(
        echo_one=Figures(connections=1, p50_ms=0.1, p99_ms=1.0, messages_per_s=9_000.0),
        echo_crowd=Figures(connections=64, p50_ms=5.0, p99_ms=9.0, messages_per_s=10_000.0, cost_us={"echo": 100.0}),
        path_one=measured(p50_ms, 1_500.0, rows=rows),
        path_crowd=measured(9.0, messages_per_s, cost_us=cost_us, ingest_us=ingest),
        relayed_one=measured(0.3, 2_000.0),
        relayed_crowd=measured(8.0, 4_000.0, cost_us=150.0),
    )


def test_percentiles_and_rates_are_of_all_round_trips() -> None:
    times = [(number + 1) / 1000 for number in reversed(range(100))]
    assert figures(1, times, seconds=4.0) == Figures(connections=1, p50_ms=51.0, p99_ms=100.0, messages_per_s=25.0)


def test_what_a_message_costs_is_each_process_cpu_time_over_all_of_them() -> None:
    stretches = [
        (Timing(seconds=1.0, round_trips_s=[0.001] * 3), {"echo": 0.0002}),
        (Timing(seconds=1.0, round_trips_s=[0.001] * 1), {"echo": 0.0006}),
    ]
    assert summed_up(1, stretches).cost_us == pytest.approx({"echo": 200.0})
    assert summed_up(1, stretches).messages_per_s == 2.0


def test_the_sizes_of_what_is_done_at_once_are_differences_of_counters() -> None:
    before = Counts(appends=10, commits=5, frames=100, wake_ups={"web": 1_000, "beat": 7})
    now = Counts(appends=30, commits=15, frames=300, wake_ups={"web": 1_400, "beat": 7})
    assert divided(before, now, messages=160, seconds=2.0, cost_us={"web": 50.0, "beat": 0.0}) == Divided(
        messages_per_append=8.0,
        messages_per_commit=16.0,
        frames_per_message=1.25,
        wake_ups_per_s={"web": 200.0},
        wake_up_us={"web": 20.0},
    )


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no round trip of 64 connections was completed in 3 s"):
        figures(64, [], seconds=3)


def test_a_run_at_the_bars_passes() -> None:
    assert result().failures == []


def test_every_missed_bar_and_every_lost_report_is_named() -> None:
    assert result(p50_ms=0.3, messages_per_s=4_900.0, rows=99, cost_us=210.0, ingest=31.0).failures == [
        "round trip is 3.00 times bare echo's, at most 2.5 is the target",
        "0.49 of bare echo's messages/s, at least 0.5 is the target",
        "a message costs 2.10 times bare echo's CPU, at most 2.0 is the target",
        "ingest of a report costs 0.31 times bare echo's CPU per message, at most 0.3 is the target",
        "100 reports were sent, 99 rows were written",
    ]


def test_the_table_has_every_figure_and_ratio() -> None:
    text = table(json.loads(json.dumps(result(rows=99).document())))
    for part in (
        "bare echo, 64",
        "10,000",
        "2.50 times",
        "0.50 of bare echo's",
        "99 report rows, 1 lost",
        "relayed, 64",
        "2.00 times bare echo's, 1.50 through relays",
        "ingest per report: 0.30 times bare echo's",
        "messages per append 8.0, per commit 16.0; orders and other frames per message 1.50",
        "wake-ups: web 900/s of 40 us",
    ):
        assert part in text


def fleet_result(
    found: Waits, *, growth_mb: float = 0.0, rows: int = 100, workers: int = 96, **more: Any
) -> fleet.Result:
    usages = [
        Usage(name=name, cpu=0.2, memory_mb=125.0, growth_mb_per_minute=growth_mb * (name == "web"))
        for name in ("web", "history")
    ]
    return fleet.Result(
        workers=workers,
        jobs=2,
        machines=3,
        waits=found,
        usages=usages,
        load=[Usage(name="load-0", cpu=0.9, memory_mb=500.0, growth_mb_per_minute=9.0)],
        counted=counted(rows),
        beyond=[(1.5, waits(rate=15.0))],
        slope=True,
        **more,
    )


def test_a_fleet_at_its_bars_passes() -> None:
    assert fleet_result(waits(p95_ms=250.0, share=0.005), growth_mb=1.0).failures == []


def test_every_missed_bar_of_a_fleet_is_named() -> None:
    assert fleet_result(waits(p95_ms=251.0, share=0.006), growth_mb=1.5, rows=98).failures == [
        "100 reports were sent, 98 rows were written",
        "p95 is 251 ms, at most 250 ms is the target",
        "coordination takes 0.60%, at most 0.5% is the target",
        "web grows by 1.50 MB a minute",
    ]


def test_the_share_of_coordination_is_a_bar_for_small_fleets_only() -> None:
    assert fleet_result(waits(share=0.1, rate=97.0), workers=97).failures == []


def test_a_thousand_workers_have_bars_for_cpu_and_memory_of_the_control_plane_alone() -> None:
    at_the_bars = fleet_result(waits(rate=990.0), workers=1_000)
    assert at_the_bars.failures == []
    above = [replace(usage, cpu=0.21, memory_mb=126.0) for usage in at_the_bars.usages]
    assert msgspec.structs.replace(at_the_bars, usages=above).failures == [
        "the control plane takes 42% of a core, at most 40% is the target",
        "the control plane takes 252 MB, at most 250 MB is the target",
    ]
    assert msgspec.structs.replace(at_the_bars, usages=above, workers=1_001).failures == []


def test_ten_thousand_workers_may_wait_for_a_second_and_are_all_to_be_answered_at_their_pace() -> None:
    large = fleet_result(waits(p95_ms=1_000.0, rate=1_900.0), workers=10_000, hz=0.2)
    assert large.failures == []
    behind = msgspec.structs.replace(large, waits=waits(p95_ms=1_001.0, rate=1_400.0), unanswered_jobs=1)
    assert behind.failures == [
        "1 of 2 jobs were not answered",
        "p95 is 1001 ms, at most 1000 ms is the target",
        "0.70 of the pace's reports were answered, at least 0.75 is the target",
    ]


def test_load_is_split_into_processes_that_have_every_job_and_machine_once() -> None:
    parts = parts_of(
        bases=["a", "b"], jobs=100, workers=100, machines=101, period_s=5.0, relayed=True, batching={"name": "x"}
    )
    assert [(part.jobs, part.machines, part.bases[0]) for part in parts] == [
        (20, 21, "a"),
        (20, 20, "b"),
        (20, 20, "a"),
        (20, 20, "b"),
        (20, 20, "a"),
    ]


def test_waits_of_several_processes_are_of_one_time_and_jobs_without_any_are_counted() -> None:
    stretches = [
        Stretch(seconds=10.0, waits_s={1: [0.001] * 50, 2: []}),
        Stretch(seconds=10.0, waits_s={3: [0.003] * 50}),
    ]
    found, unanswered = fleet.together(stretches, workers=10)
    assert (found.reports_per_s, found.p50_ms, found.slowest_job_p95_ms, unanswered) == (10.0, 3.0, 3.0, 1)


def test_the_table_of_a_fleet_has_processes_losses_and_how_far_it_goes_beyond() -> None:
    text = fleet.table(json.loads(json.dumps(fleet_result(waits(), rows=99).document())))
    for part in (
        "20.0% of a core",
        "all of it: 40.0% of a core, 250 MB",
        "load-0",
        "on 3 machines",
        "1 lost",
        "beyond: 1.5 a second each",
        "0.400% of an iteration",
    ):
        assert part in text


def test_a_fleet_keeps_up_while_it_is_answered_in_time_and_at_its_pace() -> None:
    assert fleet.keeps_up((2.0, waits(rate=18.0)), workers=10)
    assert not fleet.keeps_up((2.0, waits(rate=17.0)), workers=10)
    assert not fleet.keeps_up((2.0, waits(rate=20.0, p95_ms=251.0)), workers=10)


def test_the_slowest_job_counts_among_many() -> None:
    result = jobs.Result(processes=1, jobs=100, stretches=[(1.0, waits(slowest_ms=1001.0), [])], counted=counted())
    assert result.failures == ["the slowest job's p95 is 1001 ms, at most 1000 ms is the target"]


def test_waits_are_summed_up_over_workers_and_by_job() -> None:
    found = summary({1: [0.001] * 99, 2: [0.003]}, seconds=10.0, workers=20)
    assert found == Waits(
        seconds=10.0,
        reports_per_s=10.0,
        p50_ms=1.0,
        p95_ms=1.0,
        p99_ms=3.0,
        slowest_job_p95_ms=3.0,
        coordination_share=pytest.approx(0.00102 / 2.0),
    )


async def test_a_wait_counts_from_the_last_report_of_the_iteration() -> None:
    pace = SteadyLoad(0.01)
    stretch = pace.begin()
    await pace.before_report(1, 0, 0)
    early = time.perf_counter()
    await pace.before_report(1, 1, 0)
    pace.answered(1, 0, 0)
    pace.answered(1, 1, 0)
    found = stretch.summary(workers=2)
    assert found.p99_ms < (time.perf_counter() - early) * 1000
    assert found.reports_per_s * found.seconds == pytest.approx(2)


def test_growth_is_the_slope_of_the_last_three_quarters() -> None:
    assert growth([(0.0, 0.0), (60.0, 10.0), (120.0, 11.0), (180.0, 12.0)]) == pytest.approx(1.0)
    assert growth([(0.0, 5.0), (60.0, 9.0)]) == 0.0


def test_the_memory_and_cpu_of_a_process_include_those_that_it_started() -> None:
    work = "print(sum(range(2_000_000)), flush=True)"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{work}; input()']); input()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the child has worked, and waits
        meter = Meter(processes=processes_of({"both": process.pid}))
        meter.sample()
        parent = psutil.Process(process.pid)
        assert meter.samples[0][1]["both"] > 1.5 * memory_mb(parent)
        assert cpu_s(parent) > parent.cpu_times().user
        [child] = parent.children()
        assert cpu_s(parent, [child.pid]) == pytest.approx(sum(parent.cpu_times()[:2]), abs=0.02), "counted by itself"
        process.stdin.write(b"\n\n")  # type: ignore[union-attr]


@pytest.mark.integration
@pytest.mark.thorough
def test_a_short_run_counts_every_report_that_it_sent() -> None:
    document = bench("decisions", "--seconds", "0.5")
    for name in ("path_one", "path_crowd", "relayed_one", "relayed_crowd"):
        path = document[name]
        assert path["counted"]["reports_sent"] == path["counted"]["report_rows"] > 0
        assert set(PROCESSES) <= path["figures"]["cost_us"].keys()
        assert ("relay-0" in path["figures"]["cost_us"]) == name.startswith("relayed")
    assert {"latency_ratio", "throughput_ratio", "echo_one", "echo_crowd", "failures"} < document.keys()


@pytest.mark.integration
@pytest.mark.thorough
def test_two_celery_processes_share_the_jobs_of_one_and_lose_nothing() -> None:
    runs = bench("jobs", "--seconds", "1", "--jobs", "12")["runs"]
    assert [run["processes"] for run in runs] == [1, 2]
    for run in runs:
        assert run["counted"]["reports_sent"] == run["counted"]["report_rows"] > 0


def test_the_database_benchmarks_report_what_they_missed() -> None:
    read = history.Result(
        database="sqlite",
        workers=64,
        iterations=10_000,
        chunks_s=0.7,
        chunks_json_bytes=400_000,
        rows_s=1.0,
        rows_json_bytes=10_000_000,
        folded_rows_per_s=50_000.0,
        longest_piece_ms=80.0,
    )
    assert read.document()["failures"] == ["chunks take 0.70 of the batches' time, at most 0.6 expected"]
    written = ingest.Result(
        database="sqlite",
        rows=200_000,
        ingest_rows_per_s=5_000.0,
        bare_rows_per_s=50_000.0,
        transaction_p50_ms=60.0,
        transaction_p95_ms=90.0,
    )
    assert written.document()["failures"] == [
        "0.10 of a bare executemany's rows/s, at least 0.15 expected",
        "transactions take 60 ms, at most 50 expected",
    ]


@pytest.mark.integration
def test_history_is_read_and_timed_both_ways() -> None:
    document = bench("history", "--workers", "2", "--iterations", "300")
    assert (document["workers"], document["iterations"], document["rows_json_bytes"] > 0) == (2, 300, True)


def bench(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(MANAGE), "bench", *arguments, "--json"]
    run = subprocess.run(command, capture_output=True, timeout=220, check=False)
    assert run.returncode in (0, 1), run.stderr.decode()
    document: dict[str, Any] = json.loads(run.stdout)
    return document
