"""Which files of tests a process reads in, and how they are shared out side by side: whole, the dearest first.

The groups of ``--dist loadgroup`` do nothing under pytest 9.2 (pytest-dev/pytest-xdist#1386): what a module or a
session needs is then made in every process.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

STACK = "stack"
STACKS = {
    "stack of scripts": frozenset(
        {
            "tests/integration/test_agent_scripts.py",
            "tests/integration/test_attached.py",
            "tests/integration/test_attached_scripts.py",
            "tests/integration/test_launchers.py",
            "tests/integration/test_lease.py",
            "tests/integration/test_one_script.py",
            "tests/paceline/test_adapters.py",
        }
    ),
    "stack of jobs": frozenset(
        {
            "tests/browser/test_live_service.py",
            "tests/browser/test_whole_job.py",
            "tests/deploy/test_kubernetes_training.py",
            "tests/integration/test_alerts.py",
            "tests/integration/test_autopilot.py",
            "tests/integration/test_documented_module.py",
            "tests/integration/test_draining.py",
            "tests/integration/test_elastic.py",
            "tests/integration/test_encryption.py",
            "tests/integration/test_fuzz.py",
            "tests/integration/test_jobs.py",
            "tests/integration/test_machine_tests.py",
            "tests/integration/test_prometheus.py",
            "tests/integration/test_psld.py",
            "tests/integration/test_relay.py",
            "tests/integration/test_replay.py",
            "tests/integration/test_sampling_peers.py",
            "tests/integration/test_systems.py",
            "tests/integration/test_whole_plane.py",
        }
    ),
    "stack of Ray": frozenset({"tests/integration/test_ray.py", "tests/integration/test_ray_autoscaling.py"}),
    "stack of Slurm": frozenset({"tests/integration/test_slurm.py"}),
}
"""Files whose tests use ``stack``: those of a group count as one file, so that one is started for each group.

One for all would be a chain that two processes wait for at the end; one per file takes longer to start than to use.
"""

DEAREST = (
    *STACKS,
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

MARKS = frozenset({"integration", "browser", "cluster", "alone"})


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
    """What is given to one process as a whole: the test's file, or a group of those that use ``stack``."""
    path = nodeid.partition("::")[0]
    return next((group for group, files in STACKS.items() if path in files), path)


def check_sharing(path: Path, nodeid: str, fixtures: Collection[str], marks: Collection[str]) -> None:
    """See that a test is where the rules here look for its kind.

    Raises:
        ValueError: naming the test's file, and the cure.
    """
    file = nodeid.partition("::")[0]
    if STACK in fixtures and share_of(nodeid) not in STACKS:
        raise ValueError(f"{file}: found a test that uses the stack, expected it in STACKS of {__name__}: add it.")
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
        if not self.workqueue:
            # A process keeps its last test until it is told that none follows: one that replaces another is told here.
            node.shutdown()

    def _reschedule(self, node: Any) -> None:
        """A process that replaces another is given nothing before it has said which tests it knows."""
        if node in self.registered_collections:
            super()._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """The test that ended its process, if one did: all others that were given to it are shared out again."""
        left = {share: tests for share, tests in self.assigned_work.pop(node).items() if not all(tests.values())}
        ended = next((test for tests in left.values() for test, done in tests.items() if not done), None)
        if ended is not None:
            left[share_of(ended)][ended] = True
            self.workqueue.update({share: tests for share, tests in left.items() if not all(tests.values())})
            for other in self.nodes:
                self._reschedule(other)
        return ended

    def mark_test_pending(self, item: str) -> None:
        """Try a test again, whose process has ended: the process that replaces it begins it."""
        self.workqueue.setdefault(share_of(item), {})[item] = False


def _place(share: str) -> int:
    return DEAREST.index(share) if share in DEAREST else len(DEAREST)
