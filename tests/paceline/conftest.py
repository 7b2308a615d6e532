"""What tests of pacers leave behind."""

from collections.abc import Iterator

import pytest

from tests.paceline.ranks import made


@pytest.fixture(autouse=True)
def pacers_are_closed() -> Iterator[None]:
    """Those that were made in the process of the tests, as the end of a script does."""
    yield
    while made:
        made.pop().close()
