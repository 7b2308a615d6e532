"""Which checkpoints an agent removes."""

import os
from pathlib import Path

import pytest

from workers.checkpoint_retention import DAY_S, remove_old

NOW = 1_800_000_000.0
OURS = "job-7-0123456789ab"


def written(root: Path, name: str, *, days_ago: float, last_days_ago: float | None = None) -> Path:
    """A folder with two checkpoints in it."""
    ages = (days_ago, days_ago if last_days_ago is None else last_days_ago)
    for iteration, age in zip((20, 40), ages, strict=True):
        folder = root / name / f"{iteration:09d}"
        folder.mkdir(parents=True)
        file = folder / "manifest.json"
        file.touch()
        for path in (file, folder, root / name):
            os.utime(path, (NOW - age * DAY_S,) * 2)
    for path in (root / name / "000000020", root / name):
        os.utime(path, (NOW - days_ago * DAY_S,) * 2)
    return root / name


def test_what_no_job_has_added_to_for_so_long_is_removed(tmp_path: Path) -> None:
    old = written(tmp_path, OURS, days_ago=31)
    assert remove_old(tmp_path, 30 * DAY_S, now=NOW) == [old]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "days_ago", "last_days_ago"),
    [(OURS, 29.0, None), (OURS, 90.0, 1.0), ("my-checkpoints", 90.0, None), ("job-7", 90.0, None)],
)
def test_what_is_in_use_or_not_ours_stays(
    tmp_path: Path, name: str, days_ago: float, last_days_ago: float | None
) -> None:
    folder = written(tmp_path, name, days_ago=days_ago, last_days_ago=last_days_ago)
    assert remove_old(tmp_path, 30 * DAY_S, now=NOW) == []
    assert (folder / "000000040" / "manifest.json").exists()


def test_without_a_folder_there_is_nothing_to_remove(tmp_path: Path) -> None:
    assert remove_old(tmp_path / "nowhere", 0.0, now=NOW) == []
