"""A receiver, and rows that tests of alerts begin with."""

from collections.abc import Iterator

import pytest

from tests.alerts.receiver import Receiver, listening


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with listening() as found:
        yield found
