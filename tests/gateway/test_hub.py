"""What a gateway tells of itself."""

import asyncio

import pytest

from controlplane.gateway import hub
from controlplane.gateway.hub import TURNS, turn_s


async def test_a_turn_takes_as_long_as_what_the_loop_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, left = 100.0, 2 * TURNS

    def work() -> None:
        nonlocal now_s, left
        now_s += 0.75
        left -= 1
        if left:
            asyncio.get_running_loop().call_soon(work)

    monkeypatch.setattr(hub.time, "monotonic", lambda: now_s)
    assert await turn_s() == 0.0
    asyncio.get_running_loop().call_soon(work)
    assert await turn_s() == 0.75
