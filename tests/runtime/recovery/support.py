"""What tests of recovery do to a Redis, and what they look at afterwards."""

from collections.abc import Callable
from threading import Event
from typing import Any

import msgspec

from controlplane.policies.registry import resolve
from controlplane.runtime import log, names
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.executor import frames_decoder
from controlplane.runtime.ingest import Ingest
from controlplane.runtime.recorded_jobs import recorded_decisions, recorded_log
from controlplane.runtime.redis import Client
from controlplane.runtime.redis_identity import settle
from controlplane.simulator.replay import replay
from tests.runtime.support import Driver, report
from tests.telemetry.reports import stored_reports


def copy_all(client: Client) -> None:
    ingest = Ingest(client, Event(), wait_s=0.001)
    while ingest.step():
        pass


def say(client: Client, driver: Driver, job: int, *iterations: int) -> None:
    """Both workers report these iterations, and are answered."""
    for iteration in iterations:
        for rank in (0, 1):
            said = report(iteration + 2, rank=rank, instance=f"w{rank}.0.1", position=16 * iteration)
            log.append_event(job, said, client=client)
    coordinate(job, driver.around())


def lose_everything(client: Client) -> None:
    client.flushall()


class Tail:
    """What Redis holds at one moment, to which it can be put back: as one that loses the end of its file."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._held = {key: client.dump(key) for key in client.keys("*")}

    def lose(self, *, restarted: bool = True) -> None:
        """Forget all that came since; with it comes another life."""
        self._client.flushall()
        for key, value in self._held.items():
            self._client.restore(key, 0, value)
        if restarted:
            for key in self._client.keys("job:*:engine"):
                self._client.hset(key, "run_id", "an earlier one")
            self._client.set(names.RECOVERED, "an earlier one")
        for key in self._client.keys("job:*:state"):
            self._client.delete(key)


def recover(client: Client, driver: Driver, job: int) -> None:
    """As beat and Celery do it, in a process that has just started."""
    driver.engines = driver.fresh_engines()
    assert not settle(client)
    assert client.get(names.state(job)) == b"queued"
    coordinate(job, driver.around())
    assert settle(client)


def replayed_as_stored(job: int) -> bool:
    found = replay(recorded_log(job), recorded_decisions(job), job=job, resolve=resolve, is_over=True)
    assert found.difference is None, found.difference.sentence
    return True


def reports() -> list[tuple[int, int]]:
    return sorted((row.iteration, row.rank) for row in stored_reports())


def done(iterations: int) -> list[tuple[int, int]]:
    return [(iteration, rank) for iteration in range(iterations) for rank in (0, 1)]


def orders_sent(client: Client, job: int, act: Callable[[], Any]) -> list[Any]:
    """The orders that go out while ``act`` runs, in order."""
    heard = client.pubsub()
    heard.subscribe(names.frames(job))
    act()
    messages = [m["data"] for m in iter(lambda: heard.get_message(timeout=0.2), None) if m["type"] == "message"]
    heard.close()
    frames = [frame for message in messages for frame in frames_decoder.decode(message)]
    return [msgspec.msgpack.decode(frame.data) for frame in frames if frame.slot == "orders"]
