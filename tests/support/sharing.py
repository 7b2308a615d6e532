"""How tests that run side by side are shared out among processes: whole files, the dearest first.

The groups of ``--dist loadgroup`` do nothing under pytest 9.2 (pytest-dev/pytest-xdist#1386): what a module or a
session needs is then made in every process.
"""

from typing import Any

from xdist.scheduler import LoadScopeScheduling

STACK = "stack"
SHARE_STACK = frozenset(
    {
        "tests/browser/test_live_service.py",
        "tests/browser/test_whole_job.py",
        "tests/integration/test_elastic.py",
        "tests/integration/test_jobs.py",
        "tests/integration/test_launchers.py",
        "tests/integration/test_psld.py",
        "tests/integration/test_replay.py",
        "tests/integration/test_systems.py",
    }
)
"""Files whose tests use the one ``stack``: they count as one file, so that one is started and not one per process."""

DEAREST = (STACK, "tests/integration/test_postgres.py", "tests/browser/test_pages.py", "tests/integration/test_up.py")
"""What must not begin when all others are nearly done."""


def share_of(nodeid: str) -> str:
    """What is given to one process as a whole: the test's file, or all that use the ``stack``."""
    path = nodeid.partition("::")[0]
    return STACK if path in SHARE_STACK else path


def check_sharing(nodeid: str, fixtures: tuple[str, ...]) -> None:
    """See that the lists here know a test that uses the ``stack``.

    Raises:
        ValueError: naming the test's file and where to add it.
    """
    if STACK in fixtures and share_of(nodeid) != STACK:
        path = nodeid.partition("::")[0]
        raise ValueError(f"{path}: found a test that uses the stack, expected it in SHARE_STACK of {__name__}: add it.")


class Sharing(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process one share at a time; those that are not among the dearest in the order of their tests' number."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=_place), last=False)
        super()._assign_work_unit(node)


def _place(share: str) -> int:
    return DEAREST.index(share) if share in DEAREST else len(DEAREST)
