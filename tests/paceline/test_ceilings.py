"""A learned memory limit is kept for the restarts of one rank of one job, and for no other."""

from pathlib import Path

import pytest

from paceline.ceilings import Ceiling
from paceline.variables import Target

JOB = Target(url="http://127.0.0.1:8000", job="1", token="plj_a")


def test_a_restarted_rank_knows_it(tmp_path: Path) -> None:
    Ceiling(JOB, 0, folder=tmp_path).ran_short(96, 8)
    assert Ceiling(JOB, 0, folder=tmp_path).samples == 48


@pytest.mark.parametrize(
    ("job", "rank"),
    [
        (JOB, 1),
        (JOB._replace(job="2"), 0),
        (JOB._replace(url="http://127.0.0.1:8001"), 0),
        (JOB._replace(token="plj_b"), 0),
    ],
)
def test_neither_another_rank_nor_a_job_of_that_number_of_another_control_plane_has_it(
    tmp_path: Path, job: Target, rank: int
) -> None:
    Ceiling(JOB, 0, folder=tmp_path).ran_short(96, 8)
    assert Ceiling(job, rank, folder=tmp_path).samples == 0


def test_nothing_stays_behind_a_rank_that_has_finished(tmp_path: Path) -> None:
    ceiling = Ceiling(JOB, 0, folder=tmp_path)
    ceiling.ran_short(96, 8)
    ceiling.forget()
    assert list(tmp_path.iterdir()) == []


def test_the_files_name_does_not_show_the_token(tmp_path: Path) -> None:
    Ceiling(JOB, 0, folder=tmp_path).ran_short(96, 8)
    assert [JOB.token in file.name for file in tmp_path.iterdir()] == [False]
