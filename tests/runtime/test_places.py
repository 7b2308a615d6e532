"""How many coordinators of a process may wait."""

import pytest

from controlplane.runtime import places
from controlplane.runtime.places import WHEN_BUSY, Load, Places


def test_there_are_so_many_and_what_is_given_up_is_free() -> None:
    two = Places(2, is_busy=lambda: False)
    assert [two.hold(False) for _ in range(3)] == [True, True, False]
    assert two.hold(True)
    two.release()
    assert two.hold(False)


def test_a_process_without_places_has_none() -> None:
    assert not Places(0, is_busy=lambda: False).hold(False)


def test_a_process_that_became_busy_keeps_a_few_and_gives_up_the_others() -> None:
    busy = False
    many = Places(WHEN_BUSY + 3, is_busy=lambda: busy)
    holds = [many.hold(False) for _ in range(WHEN_BUSY + 3)]
    busy = True
    holds = [many.hold(has) for has in holds]
    assert holds.count(True) == WHEN_BUSY
    assert [many.hold(has) for has in holds] == holds
    busy = False
    assert all(many.hold(has) for has in holds)


def test_a_process_with_few_places_keeps_them() -> None:
    two = Places(2, is_busy=lambda: True)
    assert [two.hold(False) for _ in range(3)] == [True, True, False]


def test_a_process_is_busy_if_it_takes_most_of_a_core_and_another_could_help(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"monotonic": 100.0, "process_time": 7.0}
    for name in clock:
        monkeypatch.setattr(places.time, name, lambda name=name: clock[name])
    has_others = True
    load = Load(lambda: has_others)
    found = []
    for passed_s, cpu_s in [(0.5, 0.5), (0.5, 0.3), (0.9, 0.0), (0.2, 0.7), (1.0, 0.8), (1.0, 0.8)]:
        has_others = len(found) < 5
        clock["monotonic"] += passed_s
        clock["process_time"] += cpu_s
        found.append(load())
    assert found == [False, True, True, False, True, False]
