"""Lines that several benchmarks print."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any


def say(line: str) -> None:
    """Print a line, without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def waits_title() -> str:
    """The heading for ``waits_line``."""
    return f"{'':34}{'p50':>10}{'p95':>10}{'p99':>10}{'slowest p95':>14}{'reports/s':>12}"


def waits_line(name: str, waits: Mapping[str, Any]) -> str:
    """One measurement."""
    milliseconds = "".join(f"{waits[key]:7.1f} ms" for key in ("p50_ms", "p95_ms", "p99_ms"))
    return f"{name:34}{milliseconds}{waits['slowest_job_p95_ms']:11.1f} ms{waits['reports_per_s']:12,.0f}"


def usage_lines(usages: Iterable[Mapping[str, Any]]) -> list[str]:
    """CPU and memory, a line per process."""
    return [
        f"  {usage['name']:14}{usage['cpu']:8.1%} of a core{usage['memory_mb']:9.0f} MB"
        f"{usage['growth_mb_per_minute']:+9.2f} MB/min"
        for usage in usages
    ]


def counted_line(name: str, counted: Mapping[str, Any]) -> str:
    """What was sent, and what arrived."""
    return (
        f"{name}: {counted['reports_sent']:,} reports sent, {counted['report_rows']:,} report rows,"
        f" {counted['reports_sent'] - counted['report_rows']:,} lost, {counted['decision_rows']:,} decision rows,"
        f" the last {counted['copied_after_s']:.2f} s after the end"
    )
