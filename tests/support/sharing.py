"""Which files of tests a process reads in, and how they are shared out side by side: whole, the dearest first.

The groups of ``--dist loadgroup`` do nothing under pytest 9.2 (pytest-dev/pytest-xdist#1386): what a module or a
session needs is then made in every process.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

STACK = "stack"
SHARE_STACK = frozenset(
    {
        "tests/browser/test_live_service.py",
        "tests/browser/test_whole_job.py",
        "tests/deploy/test_kubernetes_training.py",
        "tests/integration/test_alerts.py",
        "tests/integration/test_attached.py",
        "tests/integration/test_attached_scripts.py",
        "tests/integration/test_elastic.py",
        "tests/integration/test_encryption.py",
        "tests/integration/test_jobs.py",
        "tests/integration/test_launchers.py",
        "tests/integration/test_lease.py",
        "tests/integration/test_one_script.py",
        "tests/integration/test_prometheus.py",
        "tests/integration/test_psld.py",
        "tests/integration/test_ray.py",
        "tests/integration/test_ray_autoscaling.py",
        "tests/integration/test_replay.py",
        "tests/integration/test_slurm.py",
        "tests/integration/test_systems.py",
        "tests/integration/test_whole_plane.py",
        "tests/paceline/test_adapters.py",
    }
)
"""Files whose tests use the one ``stack``: they count as one file, so that one is started and not one per process."""

DEAREST = (
    STACK,
    "tests/integration/test_postgres.py",
    "tests/integration/test_several.py",
    "tests/browser/test_pages.py",
    "tests/integration/test_demo.py",
    "tests/benchmarks/test_live.py",
    "tests/integration/test_up.py",
    "tests/deploy/test_topology.py",
    "tests/browser/test_keyboard.py",
    "tests/integration/test_faults.py",
)
"""What must not begin when all others are nearly done."""

MARKS = frozenset({"integration", "browser", "cluster"})


def is_passed_over(path: Path, asked: str) -> bool:
    """Whether no test of a file can have a mark of those that alone are asked for, as in "integration or browser".

    Such a file is not even imported: every process would import hundreds of them to run a handful of others.
    """
    marks = set(asked.split(" or "))
    if not marks <= MARKS or path.suffix != ".py" or not path.name.startswith("test_"):
        return False
    text = path.read_text()
    return not any(f"mark.{mark}" in text for mark in marks)


def share_of(nodeid: str) -> str:
    """What is given to one process as a whole: the test's file, or all that use the ``stack``."""
    path = nodeid.partition("::")[0]
    return STACK if path in SHARE_STACK else path


def check_sharing(path: Path, nodeid: str, fixtures: Collection[str], marks: Collection[str]) -> None:
    """See that a test is where the rules here look for its kind.

    Raises:
        ValueError: naming the test's file, and the cure.
    """
    file = nodeid.partition("::")[0]
    if STACK in fixtures and share_of(nodeid) != STACK:
        raise ValueError(f"{file}: found a test that uses the stack, expected it in SHARE_STACK of {__name__}: add it.")
    for mark in MARKS.intersection(marks):
        if is_passed_over(path, mark):
            raise ValueError(
                f"{file}: found a test marked {mark}, expected mark.{mark} to be written in the file: write it there."
            )


class Sharing(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process one share at a time; those that are not among the dearest in the order of their tests' number."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=_place), last=False)
        super()._assign_work_unit(node)


def _place(share: str) -> int:
    return DEAREST.index(share) if share in DEAREST else len(DEAREST)
