"""What the bench makes of its measurements; and one short run of it, for its counts and its shape, not for its bars."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.runtime.bench.clients import Figures, figures
from controlplane.runtime.bench.decisions import Path as Measured
from controlplane.runtime.bench.decisions import Result
from controlplane.runtime.management.commands.bench import table

MANAGE = Path(__file__).resolve().parents[2] / "manage.py"


def measured(p50_ms: float, messages_per_s: float, *, rows: int = 100) -> Measured:
    return Measured(
        figures=Figures(connections=1, p50_ms=p50_ms, p99_ms=9.0, messages_per_s=messages_per_s),
        reports_sent=100,
        report_rows=rows,
        decision_rows=5,
        copied_after_s=0.5,
    )


def result(*, p50_ms: float = 0.4, messages_per_s: float = 3_000.0, rows: int = 100) -> Result:
    return Result(
        echo_one=Figures(connections=1, p50_ms=0.1, p99_ms=1.0, messages_per_s=9_000.0),
        echo_crowd=Figures(connections=64, p50_ms=5.0, p99_ms=9.0, messages_per_s=10_000.0),
        path_one=measured(p50_ms, 1_500.0, rows=rows),
        path_crowd=measured(9.0, messages_per_s),
    )


def test_percentiles_and_rates_are_of_all_round_trips() -> None:
    times = [(number + 1) / 1000 for number in reversed(range(100))]
    assert figures(1, times, seconds=4.0) == Figures(connections=1, p50_ms=51.0, p99_ms=100.0, messages_per_s=25.0)


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no round trip of 64 connections was completed in 3 s"):
        figures(64, [], seconds=3)


def test_a_run_at_the_bars_passes() -> None:
    assert result().failures == []


def test_every_missed_bar_and_every_lost_report_is_named() -> None:
    assert result(p50_ms=0.45, messages_per_s=2_900.0, rows=99).failures == [
        "round trip is 4.50 times bare echo's, at most 4.0 is the bar",
        "0.29 of bare echo's messages/s, at least 0.3 is the bar",
        "100 reports were sent, 99 rows were written",
    ]


def test_the_table_has_every_figure_and_ratio() -> None:
    text = table(json.loads(json.dumps(result(rows=99).document())))
    for part in (
        "bare echo, 64",
        "10,000",
        "4.00 times",
        "0.30 of bare echo's",
        "99 report rows",
        "MISSED: 100 reports",
    ):
        assert part in text


@pytest.mark.integration
def test_a_short_run_counts_every_report_that_it_sent() -> None:
    command = [sys.executable, str(MANAGE), "bench", "decisions", "--json", "--seconds", "0.5"]
    run = subprocess.run(command, capture_output=True, timeout=110, check=False)
    assert run.returncode in (0, 1), run.stderr.decode()
    document = json.loads(run.stdout)
    for path in (document["path_one"], document["path_crowd"]):
        assert path["reports_sent"] == path["report_rows"] > 0
    assert {"latency_ratio", "throughput_ratio", "echo_one", "echo_crowd", "failures"} < document.keys()
