"""``manage.py bench pages``: load times and sizes of the views of a long job and the lists of a large cluster.

Uses a private control plane with a long job, a job of many workers, many machines and many jobs. For every tab of the
long job and the first pages of the others it measures the server's time for the page and its first figure without
caches, the size of all figures, and when Chromium with a new profile shows the first figure, or the page if it has
none; then again with the browser's cache. Figures are medians of several rounds.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TextIO

BAR_S: Final = 1.2
"""Target: time from the click to the first chart, or to a page without charts, on a first visit."""

WORDS_BAR_S: Final = 0.6
"""Target: time from the click to a job's verdict, lanes and tiles, on a first visit."""

FIRST_BYTES, AGAIN_BYTES = 1_600_000, 60_000
"""Targets: transferred bytes on a first visit, and on a later one."""

MACHINES: Final = 512
JOBS: Final = 1_000
BRIEF: Final = 200
"""Iterations of the job with a worker on each machine."""

ROUNDS: Final = 3
LIMIT_S: Final = 1_800.0


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Write a job of that size, open each of its views, and fail if one misses its target."""
    parser = argparse.ArgumentParser(prog="bench pages", description=__doc__)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    parser.add_argument("--within", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.config.settings")
    import django

    django.setup()
    if options.within:
        print(json.dumps(measure(options.within, options.workers, options.iterations)), file=out)
        return 0
    document = _beside_a_control_plane(options.workers, options.iterations)
    print(json.dumps(document) if options.json else table(document), file=out)
    return 1 if document["failures"] else 0


def _beside_a_control_plane(workers: int, iterations: int) -> dict[str, Any]:
    """Measure in a process with the settings of a control plane that serves the pages."""
    from benchmarks.live.cluster import running_cluster
    from controlplane.runtime.embedded.control_plane import CHECKOUT
    from controlplane.runtime.embedded.processes import run_command

    sizes = ["--workers", str(workers), "--iterations", str(iterations)]
    with running_cluster() as cluster:
        command = [sys.executable, "-m", "benchmarks.live.pages", "--within", cluster.plane.url, *sizes]
        said = run_command(
            "the measurement", command, environment=cluster.environment, folder=CHECKOUT, seconds=LIMIT_S
        )
    return dict(json.loads(said))


def measure(address: str, workers: int, iterations: int) -> dict[str, Any]:
    """Times in seconds and sizes in bytes, by view; the environment is that of the control plane at ``address``."""
    from benchmarks.live.browsers import missing, session, visits

    cookie, pages = session(), _pages(workers, iterations)
    views = {name: _view(path, job, figures, cookie) for name, (path, job, figures) in pages.items()}
    left_out = missing()
    if not left_out:
        for name, visit in visits(
            address, {name: path for name, (path, *_) in pages.items()}, cookie=cookie, rounds=ROUNDS
        ).items():
            views[name] |= {
                "shown_s": visit.first.shown_s,
                "words_s": visit.first.words_s,
                "again_s": visit.again.shown_s,
                "first_bytes": visit.first.wire_bytes,
                "again_bytes": visit.again.wire_bytes,
            }
    return {
        "workers": workers,
        "iterations": iterations,
        "load": os.getloadavg()[0],
        "views": views,
        "left_out": left_out,
        "failures": failures(views),
    }


def failures(views: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Missed targets, as sentences; values that were not measured are ignored."""
    missed = []
    for name, view in views.items():
        if (shown_s := view.get("shown_s") or 0.0) > BAR_S:
            missed.append(f"{name}: shown after {shown_s:.2f} s, at most {BAR_S} expected")
        if (words_s := view.get("words_s") or 0.0) > WORDS_BAR_S:
            missed.append(f"{name}: verdict and lanes after {words_s:.2f} s, at most {WORDS_BAR_S} expected")
        for when, bar in (("first", FIRST_BYTES), ("again", AGAIN_BYTES)):
            if (size := view.get(f"{when}_bytes", 0)) > bar:
                missed.append(f"{name}: {size:,} bytes over the wire ({when}), at most {bar:,} expected")
    return missed


def _pages(workers: int, iterations: int) -> dict[str, tuple[str, Any, tuple[str, ...]]]:
    """Address, job and figures of each page, by name."""
    from benchmarks.database.finished_jobs import add_job, add_jobs, add_machines
    from frontend.tabs import TABS

    machines = add_machines(MACHINES)
    add_jobs(JOBS - 2)
    wide, long = add_job(MACHINES, BRIEF, machines), add_job(workers, iterations, machines)
    tabs = {name: (f"/jobs/{long.pk}/?tab={name}", long, tab.figures_for(workers)) for name, tab in TABS.items()}
    lists = {f"{MACHINES} machines": "/", "machines": "/workers/", f"{JOBS:,} jobs": "/jobs/"}
    of_many = {
        f"{name} of {MACHINES} workers": (f"/jobs/{wide.pk}/?tab={name}", wide, TABS[name].figures_for(MACHINES))
        for name in ("overview", "heatmap", "waiting")
    }
    return tabs | {name: (path, None, ()) for name, path in lists.items()} | of_many


def table(document: dict[str, Any]) -> str:
    """The figures as a table."""
    size = f"{document['workers']} workers x {document['iterations']:,} iterations"
    lines = [
        f"{size:36}{'page':>10}{'figure':>10}{'of it CPU':>12}{'all JSON':>12}{'words':>10}{'shown':>10}{'again':>10}"
        f"{'wire':>10}{'again':>10}"
    ]
    for name, view in document["views"].items():
        lines.append(
            f"{name:36}{_ms(view['page_s']):>10}{_ms(view['figure_s']):>10}{_ms(view['cpu_s']):>12}"
            f"{view['json_bytes'] / 1e6:9.2f} MB{_ms(view.get('words_s')):>10}{_ms(view.get('shown_s')):>10}"
            f"{_ms(view.get('again_s')):>10}{_kb(view.get('first_bytes')):>10}{_kb(view.get('again_bytes')):>10}"
        )
    lines += [f"without a browser: {document['left_out']}"] if document["left_out"] else []
    lines.append(
        "page and figure are the server's part; words: a job's verdict and lanes, shown: the first chart, or the page\n"
        "without one, from the click on; wire: what is received until the figures in view are there.\n"
        f"bars: {WORDS_BAR_S} s for words and {BAR_S} s until it is shown, {_kb(FIRST_BYTES)} and {_kb(AGAIN_BYTES)};"
        f" load of this machine meanwhile: {document['load']:.1f}"
    )
    return "\n".join([*lines, *document["failures"]])


def _ms(seconds: float | None) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds is not None else "-"


def _kb(size: int | None) -> str:
    return f"{size / 1000:,.0f} KB" if size is not None else "-"


def _view(path: str, job: Any, figures: tuple[str, ...], cookie: str) -> dict[str, Any]:
    """Measure the server's part."""
    from django.test import Client

    from frontend.build import build_figure

    client = Client(SERVER_NAME="localhost")
    client.cookies["sessionid"] = cookie
    page_s, page_cpu_s, page = _median(lambda: client.get(path))
    if page.status_code != 200:
        raise RuntimeError(f"{path}: found status {page.status_code}, expected 200")
    drawn = [_median(partial(build_figure, name, job, {})) for name in figures]
    figure_s, figure_cpu_s, _ = drawn[0] if drawn else (0.0, 0.0, b"")
    return {
        "page_s": page_s,
        "page_bytes": len(page.content),
        "figure_s": figure_s,
        "cpu_s": page_cpu_s + figure_cpu_s,
        "json_bytes": sum(len(body) for _, _, body in drawn),
    }


def _median(action: Callable[[], Any]) -> tuple[float, float, Any]:
    """Median wall time and CPU time of this process without caches, and the last response."""
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
