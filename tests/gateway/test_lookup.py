"""Many who ask the database at once are answered by one call."""

import asyncio
import threading
from collections.abc import Collection

import pytest

from controlplane.gateway.lookup import Lookup

pytestmark = pytest.mark.django_db(transaction=True)
"""A call in a thread closes old connections, which an earlier test may have left open."""


class Table:
    """What is read, call by call; the first call waits until it is let go."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.may_go = threading.Event()

    def read(self, keys: Collection[int]) -> dict[int, str]:
        self.calls.append(sorted(keys))
        assert self.may_go.wait(60.0)
        if 13 in keys:
            raise OSError("13 cannot be read")
        return {key: f"value {key}" for key in keys}


async def called(table: Table, asking: "asyncio.Task[str]") -> None:
    """Wait for the first call; an error of who asked fails the test."""
    while not table.calls:
        await asyncio.wait([asking], timeout=0.001)
        if asking.done():
            asking.result()


async def test_who_asks_during_a_call_is_answered_by_the_next() -> None:
    table = Table()
    lookup = Lookup(table.read)
    first = asyncio.create_task(lookup.get(1))
    await called(table, first)
    others = [asyncio.create_task(lookup.get(key)) for key in (2, 3, 2, 4, 1)]
    await asyncio.sleep(0)
    table.may_go.set()
    found = await asyncio.gather(first, *others)
    assert found == [f"value {key}" for key in (1, 2, 3, 2, 4, 1)]
    assert table.calls == [[1], [1, 2, 3, 4]]
    assert await lookup.get(1) == "value 1"
    assert table.calls[2:] == [[1]], "nothing is remembered"


async def test_a_key_that_cannot_be_read_harms_nobody_else() -> None:
    table = Table()
    table.may_go.set()
    lookup = Lookup(table.read)
    found = await asyncio.gather(*(lookup.get(key) for key in (12, 13, 14)), return_exceptions=True)
    assert [str(each) for each in found] == ["value 12", "13 cannot be read", "value 14"]
    assert table.calls == [[12, 13, 14], [12], [13], [14]]
    assert await lookup.get(12) == "value 12"


async def test_the_end_of_the_reader_leaves_nobody_waiting() -> None:
    table = Table()
    lookup = Lookup(table.read)
    asking = asyncio.create_task(lookup.get(1))
    await called(table, asking)
    assert lookup._reading is not None
    lookup._reading.cancel()
    table.may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_who_goes_away_takes_no_answer_from_others() -> None:
    table = Table()
    lookup = Lookup(table.read)
    first, second = (asyncio.create_task(lookup.get(1)) for _ in range(2))
    await called(table, first)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    table.may_go.set()
    assert await second == "value 1"
    assert len(table.calls) == 1
