"""Runs the tests in parts: ``make test``; with ``--fast``, the first part only.

Tests wait for part of their time: four in parallel keep two cores busy, or three of those that start many processes.
Clusters leave half of the cores idle while they start, so their tests run one after another beside those three. Each
part runs even if an earlier one failed. Tests that failed are run again alone, after all others, and count only if they
fail again. An interrupt stops the clusters, too, and their output until then is printed.
"""

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

FAST: Final = ("-m", "not integration and not browser and not cluster", "-n", "4", "--dist", "loadfile")
PROCESSES: Final = ("-m", "integration or browser", "-n", "3", "--dist", "loadfile")
CLUSTERS: Final = ("-m", "cluster", "-o", "cache_dir=.pytest_cache/clusters")
"""Beside another run, with its own record of what failed."""
AGAIN: Final = ("--last-failed", "--last-failed-no-failures", "none")

OUTPUT: Final = Path("var/clusters.txt")
"""The clusters' output until it is printed, after that of the run beside it."""

TEARDOWN_S: Final = 60.0
"""Time for an interrupted run to stop its clusters, which would otherwise stay."""

PASSED, FAILED, NOTHING_SELECTED = 0, 1, 5
"""Exit codes of pytest."""


def say(text: str) -> None:
    """Write before what the runs write."""
    sys.stdout.write(text)
    sys.stdout.flush()


def command(*arguments: str) -> list[str]:
    """The command of one run, which is printed."""
    words = [sys.executable, "-m", "pytest", *arguments]
    say(f"+ {' '.join(words)}\n")
    return words


def run_beside(arguments: Sequence[str]) -> tuple[int, int]:
    """Run the tests of many processes and those of clusters at the same time; their exit codes."""
    OUTPUT.parent.mkdir(exist_ok=True)
    with OUTPUT.open("w+", encoding="utf-8", errors="replace") as output:
        words = command(*CLUSTERS, *arguments)
        say(f"Its output is in {OUTPUT} until the next run has ended.\n")
        # In a group of its own: the terminal's interrupt would come beside that of stop(), and break off the teardown.
        clusters = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, process_group=0)
        try:
            ended = subprocess.call(command(*PROCESSES, *arguments))
            clusters.wait()
        finally:
            try:
                stop(clusters)
            finally:
                output.seek(0)
                say(output.read())
    return ended, clusters.returncode


def stop(run: subprocess.Popen[bytes]) -> None:
    """End a run that has not ended; pytest tears down and reports when interrupted, but not when terminated."""
    if run.poll() is not None:
        return
    say(f"Stopping the clusters, for at most {TEARDOWN_S:g} s. A second interrupt would leave them running.\n")
    try:
        run.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            run.wait(TEARDOWN_S)
    finally:
        run.kill()
        run.wait()


def end(number: int, _frame: FrameType | None) -> None:
    """Leave through every ``finally``."""
    signal.signal(number, signal.SIG_IGN)  # a second one: make passes on what its whole group was sent
    sys.exit(128 + number)


def main(arguments: Sequence[str]) -> int:
    """Run all tests with these arguments of pytest; 0 if all passed."""
    if "--fast" in arguments:
        return subprocess.call(command(*FAST, *(each for each in arguments if each != "--fast")))
    fast = subprocess.call(command(*FAST, *arguments))
    processes, clusters = run_beside(arguments)
    again = []
    if FAILED in (fast, processes):  # they share a record
        again.append(subprocess.call(command(*AGAIN, *arguments)))
    if clusters == FAILED:
        again.append(subprocess.call(command(*CLUSTERS, *AGAIN, *arguments)))
    is_broken = not {fast, processes, clusters} <= {PASSED, FAILED, NOTHING_SELECTED}
    return int(is_broken or any(code != PASSED for code in again))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    sys.exit(main(sys.argv[1:]))
