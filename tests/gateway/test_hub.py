"""What a gateway tells of itself."""

import asyncio

import pytest

from controlplane.gateway import hub
from controlplane.gateway.hub import TURNS, turn_s
from controlplane.jobs.models import Job
from controlplane.runtime import liveness, names, presence
from controlplane.runtime.redis import Client
from controlplane.runtime.scripts import RECORD_HEARTBEATS
from tests.gateway.transports import eventually


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


async def test_silence_is_excused_until_a_new_gateway_has_announced_itself_to_every_job(
    client: Client, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its start and its first heartbeat, processes whose connections ended with the one before are not lost."""
    ended = liveness.where(999_999_999)
    RECORD_HEARTBEATS.run(client, [names.GATEWAYS], ended, 5_000, "")
    states: list[tuple[bool, int]] = []
    announce = hub.announce

    def watched(process: str, over: Client) -> int:
        states.append((presence.gateway_trouble(client) != "", client.xlen(names.events(job.pk))))
        return announce(process, over)

    monkeypatch.setattr(hub, "announce", watched)
    new = hub.Hub()
    try:
        await new.start()
        assert presence.gateway_trouble(client) != ""
        await eventually(lambda: ended not in presence.gateways_now(client))
        assert states == [(True, 1)]
        assert client.xlen(names.events(job.pk)) == 2
    finally:
        await new.aclose()
