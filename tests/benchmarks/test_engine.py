"""What the bench of the engine makes of its measurements, and what a report must not cost."""

from typing import Protocol

import pytest

from benchmarks.offline.engine import Row, failures, record
from controlplane.core.engine import Engine
from controlplane.policies import registry


def row(barrier: str, per_second: float, workers: int = 1000) -> Row:
    return Row(barrier=barrier, workers=workers, events=1, per_second=per_second, reports=1, ticks=0)


def test_an_engine_at_its_bars_passes() -> None:
    assert failures([row("bsp", 80_000.0), row("pbsp", 30_000.0), row("pbsp", 45_000.0, 100)]) == []


def test_every_missed_bar_of_an_engine_is_named() -> None:
    assert failures([row("bsp", 79_000.0), row("pbsp", 12_000.0), row("pbsp", 24_000.0, 100)]) == [
        "bsp: 79,000 events/s with 1,000 workers, at least 80,000 expected",
        "pbsp: 12,000 events/s with 1,000 workers, at least 30,000 expected",
        "pbsp: an event costs 2.00 times as much with 1,000 workers as with 100",
    ]


@pytest.mark.parametrize("barrier", ["bsp", "ssp", "pbsp"])
def test_a_report_asks_no_policy_for_its_protocols(barrier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes longer than all else that a report costs: it is known since the policy was chosen."""
    entries, start = record(barrier, 10, 100)
    engine = Engine(job=1, resolve=registry.resolve)
    for entry in entries[:start]:
        engine.handle(entry)
    asked: list[type] = []

    def note(protocol: type, instance: object) -> bool:
        asked.append(protocol)
        return False

    monkeypatch.setattr(type(Protocol), "__instancecheck__", note)
    for entry in entries[start:]:
        engine.handle(entry)
    assert asked == []
