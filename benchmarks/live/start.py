"""``manage.py bench start``: time from ``manage.py up`` with an empty data folder to the first page, and the import
time of web.

Files are in the disk cache from the second round on, so the first round is not counted. CPU time is that of all
processes until the first page; unlike wall time, it does not depend on other load on the machine.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TextIO

import httpx
import psutil

from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.ground import free_port

MOST_FIRST_PAGE_S: Final = 4.0
"""Target: from the command to the first page."""

MOST_IMPORT_CPU_S: Final = 1.2
"""Target: CPU of importing the web process with all its pages."""

ROUNDS: Final = 3
LIMIT_S: Final = 300.0
LOOK_S: Final = 0.02

IMPORT: Final = """
import time
import controlplane.config.asgi
from django.urls import get_resolver
get_resolver().url_patterns
print(time.process_time())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Medians over the rounds."""

    first_page_s: float
    cpu_s: float
    """CPU time of all processes until the first page."""
    import_cpu_s: float
    """CPU time of the web process's imports."""
    load: float
    """Load average of this machine at the end."""

    @property
    def failures(self) -> list[str]:
        """Missed targets, as sentences."""
        missed = []
        if self.first_page_s > MOST_FIRST_PAGE_S:
            missed.append(
                f"the first page came after {self.first_page_s:.1f} s, at most {MOST_FIRST_PAGE_S:g} expected"
            )
        if self.import_cpu_s > MOST_IMPORT_CPU_S:
            missed.append(f"web imports for {self.import_cpu_s:.2f} CPU s, at most {MOST_IMPORT_CPU_S:g} expected")
        return missed


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Print the figures; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="bench start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="that count (default: %(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = measure(options.rounds)
    if options.json:
        json.dump(asdict(found) | {"failures": found.failures}, out)
        return 1 if found.failures else 0
    print(
        f"first page of up with an empty database: {found.first_page_s:.2f} s (target: {MOST_FIRST_PAGE_S:g})", file=out
    )
    print(f"CPU of all processes until then: {found.cpu_s:.2f} s; load of this machine: {found.load:.1f}", file=out)
    print(f"CPU of importing web: {found.import_cpu_s:.2f} s (target: {MOST_IMPORT_CPU_S:g})", file=out)
    for sentence in found.failures:
        print(f"missed: {sentence}", file=out)
    return 1 if found.failures else 0


def measure(rounds: int) -> Start:
    """Start ``rounds`` times after a warm-up."""
    with TemporaryDirectory(prefix="paceline-bench-") as folder:
        # The environment of a first start, without variables of another control plane.
        own = {"PACELINE_DATA_DIR": folder, "REDIS_URL": "", "DATABASE_URL": ""}
        imports = [_import_cpu_s({**os.environ, **own}) for _ in range(rounds + 1)][1:]
    starts = [first_page() for _ in range(rounds + 1)][1:]
    return Start(
        first_page_s=statistics.median(took_s for took_s, _ in starts),
        cpu_s=statistics.median(cpu_s for _, cpu_s in starts),
        import_cpu_s=statistics.median(imports),
        load=os.getloadavg()[0],
    )


def first_page() -> tuple[float, float]:
    """Seconds until the sign-in page is served, and CPU seconds until then.

    Raises:
        RuntimeError: if it is not served in time.
    """
    with TemporaryDirectory(prefix="paceline-bench-", ignore_cleanup_errors=True) as folder:
        port, log = free_port(), Path(folder) / "up.log"
        own = {"PACELINE_DATA_DIR": str(Path(folder) / "data"), "REDIS_URL": "", "DATABASE_URL": ""}
        began = time.perf_counter()
        with (
            log.open("wb") as output,
            subprocess.Popen(
                [*MANAGE, "up", "--port", str(port)],
                cwd=CHECKOUT,
                env={**os.environ, **own},
                stdout=output,
                stderr=output,
                start_new_session=True,
            ) as up,
        ):
            try:
                while not _is_there(f"http://127.0.0.1:{port}/login/"):
                    if up.poll() is not None or time.perf_counter() - began > LIMIT_S:
                        raise RuntimeError(f"up showed no page: {log.read_text(errors='replace')[-2000:]}")
                    time.sleep(LOOK_S)
                return time.perf_counter() - began, _cpu_s(psutil.Process(up.pid))
            finally:
                up.send_signal(signal.SIGINT)
                up.wait()


def _is_there(url: str) -> bool:
    try:
        return httpx.get(url, timeout=10.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process and its children, ended ones included."""
    total = 0.0
    for each in [process, *process.children(recursive=True)]:
        times = each.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return float(total)


def _import_cpu_s(environment: Mapping[str, str]) -> float:
    run = subprocess.run(
        [sys.executable, "-c", IMPORT], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True
    )
    return float(run.stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
