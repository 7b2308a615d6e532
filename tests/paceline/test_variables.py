"""The environment of an attached job: what a rank reads, and what it says of a value that cannot be used."""

import pytest

from paceline.errors import CannotAttach
from paceline.variables import JOB, RANK_VARIABLES, TOKEN, URL, Target, target

SET = {URL: "http://127.0.0.1:8000", JOB: "7", TOKEN: "plj_x"}


def test_arguments_come_before_the_environment() -> None:
    assert target(variables=SET) == Target(url="http://127.0.0.1:8000", job="7", token="plj_x")
    assert target("http://10.0.0.1", 8, "plj_y", variables=SET) == Target("http://10.0.0.1", "8", "plj_y")


def test_missing_values_are_named_by_their_variables() -> None:
    assert target(variables={URL: "http://127.0.0.1:8000"}).missing == [JOB, TOKEN]
    assert target(variables={}).missing == list(RANK_VARIABLES[:3])
    assert not target(variables=SET).missing


@pytest.mark.parametrize("job", ["seven", "", "-1", "7.0", "²", "7 "])
def test_a_job_that_is_no_number_is_refused_by_its_variable(job: str) -> None:
    with pytest.raises(CannotAttach, match=f"{JOB} is {job!r}; give the number of the job"):
        _ = target(variables=SET | {JOB: job}).number
