"""Which tests are left out unless a thorough run is asked for."""

import pytest

from tests.support.examples import is_left_out


@pytest.mark.parametrize(
    ("marks", "named", "profile", "left_out"),
    [
        (["integration", "thorough"], ["tests"], "quick", True),
        (["integration", "thorough"], ["tests"], "thorough", False),
        (["integration", "thorough"], ["tests/test_x.py::test_it"], "quick", False),
        (["integration"], ["tests"], "quick", False),
    ],
)
def test_long_tests_are_left_out_of_a_quick_run_that_does_not_name_them(
    marks: list[str], named: list[str], profile: str, left_out: bool
) -> None:
    assert is_left_out(marks, named, profile=profile) is left_out
