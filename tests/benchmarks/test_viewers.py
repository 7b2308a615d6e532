"""What the bench of pages makes of what it saw."""

from typing import Any

import pytest

from benchmarks.live import viewers
from benchmarks.live.browsers import Tab
from benchmarks.live.steady_load import Waits
from benchmarks.live.viewers import Result, delays


def test_each_iteration_is_late_by_the_frame_that_first_had_it() -> None:
    """Those that were reported before the first frame were late because no one had opened the page."""
    shown = [(10.0, 2), (10.9, 4), (12.0, 6), (12.4, 6)]
    sent_at = {2: 8.0, 3: 9.0, 4: 10.4, 5: 10.8, 6: 11.5}
    assert delays(shown, sent_at) == pytest.approx([0.5, 1.2, 0.5])


def test_a_heap_that_only_fills_its_caches_is_flat() -> None:
    flat, growing = (tab(lambda minute, by=by: 12.0 + by * minute) for by in (0.09, 2.0))  # type: ignore[misc]
    assert [result(tab=each).failures for each in (flat, growing)] == [[], ["the tab grows by 2.00 MB a minute"]]


def test_what_misses_its_bar_is_reported() -> None:
    assert result(watched=waits(10.9), pixel_p95_s=0.5).failures == []
    assert result(watched=waits(12.0), pixel_p95_s=0.6).failures == [
        "with 50 pages p95 is 1.20 times that with none, at most 1.1",
        "p95 from report to pixel is 0.60 s, at most 0.5 s",
    ]


def test_without_a_browser_the_rest_is_printed_and_that_is_reported() -> None:
    text = viewers.table(result(left_out="Chromium is not installed").document())
    assert text.splitlines()[4:] == [
        "p95 is 1.00 times (target: 1.1); each page receives 2.0 ticks/s",
        "without a browser: Chromium is not installed",
    ]


def tab(size: Any) -> Tab:
    """Of twenty minutes, looked at four times a minute; the first samples are of before anything was cached."""
    samples = [(15.0 * each, size(each / 4)) for each in range(81)]
    return Tab(shown=[], heap_mb=[(at, mb if at > 240 else 5.0) for at, mb in samples])


def waits(p95_ms: float) -> Waits:
    """Others are not looked at."""
    others = {"p50_ms": 5.0, "p99_ms": 20.0, "slowest_job_p95_ms": p95_ms, "coordination_share": 0.0}
    return Waits(seconds=60.0, reports_per_s=64.0, p95_ms=p95_ms, **others)


def result(**more: Any) -> Result:
    """A run at the bars, but for what is given."""
    fields = {"alone": waits(10.0), "watched": waits(10.0), "ticks_per_s": 2.0, "usages": []}
    return Result(**fields | more)
