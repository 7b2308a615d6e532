"""How the heartbeats of many jobs reach Redis."""

import pytest

from controlplane.gateway.heartbeats import Heartbeats
from controlplane.runtime import names, presence
from controlplane.runtime.redis import Client, Part
from controlplane.runtime.wire import Caller, Reply


class Counted(Caller):
    """Counts the calls that wait for their reply at the same time."""

    calls = waiting = most = 0

    async def call(self, *parts: Part) -> Reply:
        if parts[0] != "EVALSHA":
            return await super().call(*parts)  # a script that this Redis has not seen is sent again
        self.calls += 1
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            return await super().call(*parts)
        finally:
            self.waiting -= 1


@pytest.mark.usefixtures("redis_url")
async def test_heartbeats_of_all_jobs_are_written_at_once_and_only_once(client: Client) -> None:
    heartbeats, caller, jobs = Heartbeats(), Counted(), range(1, 21)
    for job in jobs:
        for rank in range(3):
            heartbeats.note(names.presence(job), f"worker:{rank}:w{rank}")
            heartbeats.note(names.presence(job), f"worker:{rank}:w{rank}")
    await caller.open()
    await heartbeats.flush(caller)
    await heartbeats.flush(caller)
    caller.close()
    assert caller.most == caller.calls == len(jobs)
    assert {job: len(presence.last_seen(client, job)) for job in jobs} == dict.fromkeys(jobs, 3)


@pytest.mark.usefixtures("redis_url")
async def test_the_load_of_machines_is_written_with_their_heartbeats(client: Client) -> None:
    heartbeats, caller = Heartbeats(), Caller()
    heartbeats.note(names.AGENTS, "7", {"cpu": 0.5})
    heartbeats.note(names.AGENTS, "8")
    await caller.open()
    await heartbeats.flush(caller)
    caller.close()
    assert {agent: dict(found.load) for agent, found in presence.agents_now(client).items()} == {7: {"cpu": 0.5}, 8: {}}
