"""What earlier releases called dead is called lost, wherever it is kept."""

import msgspec
import pytest

from controlplane.core.states import ProcessState


def test_snapshots_and_logs_of_earlier_releases_can_be_read() -> None:
    assert msgspec.json.decode(b'["dead", "ready"]', type=list[ProcessState]) == [ProcessState.LOST, ProcessState.READY]
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value"):
        msgspec.json.decode(b'"asleep"', type=ProcessState)
