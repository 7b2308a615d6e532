"""``manage.py bench pages``: time to the first chart of each view of a long job, and its size.

For every tab of a finished job: the page's HTML and its first figure's JSON with nothing cached, medians of several
rounds, in a database of its own; and what Chromium takes to load the chart library and to draw that JSON.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TextIO

BAR_S: Final = 1.5
"""Page and first figure together at most."""

ROUNDS: Final = 3


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Write a job of that size, open each of its views, and fail where one takes longer than the bar."""
    parser = argparse.ArgumentParser(prog="bench pages", description=__doc__)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    options = parser.parse_args(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.config.settings")
    import django

    django.setup()
    document = measure(options.workers, options.iterations)
    print(json.dumps(document) if options.json else table(document), file=out)
    return 1 if document["failures"] else 0


def measure(workers: int, iterations: int) -> dict[str, Any]:
    """Times in seconds and sizes in bytes, by view."""
    from controlplane.runtime.bench.browsers import missing
    from controlplane.runtime.bench.databases import empty_database
    from controlplane.runtime.bench.history import write_reports
    from frontend.tabs import TABS

    with empty_database() as kind:
        job = _finished(workers, iterations)
        write_reports(job.pk, workers, iterations)
        views = {name: _view(job, name, tab.figures) for name, tab in TABS.items()}
    left_out = missing()
    if not left_out:
        _draw(views)
    for view in views.values():
        view.pop("first_figure")
    slow = [name for name, view in views.items() if view["first_chart_s"] > BAR_S]
    failures = [
        f"{name}: {views[name]['first_chart_s']:.2f} s to the first chart, at most {BAR_S} expected" for name in slow
    ]
    return {
        "database": kind,
        "workers": workers,
        "iterations": iterations,
        "load": os.getloadavg()[0],
        "views": views,
        "left_out": left_out,
        "failures": failures,
    }


def table(document: dict[str, Any]) -> str:
    """The figures, for people."""
    size = f"{document['workers']} workers x {document['iterations']:,} iterations ({document['database']})"
    lines = [f"{size:48}{'page':>10}{'figure':>10}{'browser':>10}{'first chart':>13}{'of it CPU':>12}{'all JSON':>12}"]
    for name, view in document["views"].items():
        lines.append(
            f"{name:48}{view['page_s'] * 1000:7.0f} ms{view['figure_s'] * 1000:7.0f} ms"
            f"{view['browser_s'] * 1000:7.0f} ms"
            f"{view['first_chart_s'] * 1000:10.0f} ms{view['first_chart_cpu_s'] * 1000:9.0f} ms"
            f"{view['json_bytes'] / 1e6:9.2f} MB"
        )
    lines += [f"without a browser: {document['left_out']}"] if document["left_out"] else []
    lines.append(f"bar: {BAR_S} s to the first chart; load of this machine meanwhile: {document['load']:.1f}")
    return "\n".join([*lines, *document["failures"]])


def _draw(views: dict[str, dict[str, Any]]) -> None:
    """Add what the browser takes: the library once per page, and the first figure."""
    from django.contrib.staticfiles import finders

    from controlplane.runtime.bench.browsers import draw

    bodies = {name: view["first_figure"] for name, view in views.items() if view["first_figure"]}
    drawing = draw(bodies, str(finders.find("vendor/plotly.min.js")))
    for name, view in views.items():
        view["browser_s"] = drawing.library_s + drawing.draw_s[name] if name in bodies else 0.0
        view["first_chart_s"] += view["browser_s"]


def _finished(workers: int, iterations: int) -> Any:
    """A job of which everything but the reports is there."""
    from datetime import timedelta

    from controlplane.core.states import JobState
    from controlplane.jobs.models import Job
    from controlplane.runtime.bench.databases import measured_job
    from controlplane.runtime.bench.history import BEGAN

    job = measured_job(workers)
    ended = BEGAN + timedelta(hours=1)
    Job.objects.filter(pk=job.pk).update(
        state=JobState.SUCCEEDED, iteration=iterations, started_at=BEGAN, finished_at=ended, samples=1, busy_s=1.0
    )
    job.refresh_from_db()
    return job


def _view(job: Any, tab: str, figures: tuple[str, ...]) -> dict[str, Any]:
    from django.contrib.auth.models import User
    from django.test import Client

    from frontend.build import build_figure

    person = User.objects.get_or_create(username="looker", defaults={"is_superuser": True})[0]
    client = Client(SERVER_NAME="localhost")
    client.force_login(person)
    page_s, page_cpu_s, page = _median(lambda: client.get(f"/jobs/{job.pk}/?tab={tab}"))
    if page.status_code != 200:
        raise RuntimeError(f"{tab}: found status {page.status_code}, expected 200")
    drawn = [_median(lambda name=name: build_figure(name, job, {})) for name in figures]
    figure_s = drawn[0][0] if drawn else 0.0
    return {
        "page_s": page_s,
        "page_bytes": len(page.content),
        "figure_s": figure_s,
        "browser_s": 0.0,
        "first_figure": drawn[0][2] if drawn else b"",
        "first_chart_s": page_s + figure_s,
        "first_chart_cpu_s": page_cpu_s + (drawn[0][1] if drawn else 0.0),
        "json_bytes": sum(len(body) for _, _, body in drawn),
    }


def _median(action: Callable[[], Any]) -> tuple[float, float, Any]:
    """Median time with nothing cached, by the clock and of this process alone, and the last answer."""
    from django.core.cache import cache

    took, cpu, answer = [], [], None
    for _ in range(ROUNDS):
        cache.clear()
        began, began_cpu = time.perf_counter(), time.process_time()
        answer = action()
        took.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    return statistics.median(took), statistics.median(cpu), answer


if __name__ == "__main__":
    sys.exit(main())
