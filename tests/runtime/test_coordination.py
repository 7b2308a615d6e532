"""One job from its log to its command stream: once each, whatever dies, and by the holder of the token alone."""

import pytest

from controlplane.core.events import ControlPlaneResumed, StopRequested, TimePassed
from controlplane.runtime import log, names
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.executor import Effects, frames_decoder
from controlplane.runtime.faults import POINTS, armed
from controlplane.runtime.gathering import Gathering
from controlplane.runtime.lease import Lease, LeaseLost, Position
from controlplane.runtime.places import Places
from controlplane.runtime.redis import Client
from controlplane.runtime.scripts import RECORD_HEARTBEATS
from tests.runtime.support import JOB, CountingEngine, Died, Driver, State, answered, die, logged, report, submit

IN_COORDINATOR = [point for point in POINTS if point.startswith("coordinator.")]


def say(client: Client, *numbers: int) -> list[str]:
    return [log.append_event(JOB, report(number), client=client) for number in numbers]


def test_every_report_is_answered_once_in_order(client: Client, driver: Driver) -> None:
    submit(client)
    ids = say(client, 2, 3, 4)
    coordinate(JOB, driver.around())
    assert [(sequence, cause) for sequence, cause, _ in answered(client)] == list(enumerate(ids, start=1))


def test_orders_that_were_overtaken_are_logged_but_not_sent(client: Client, driver: Driver) -> None:
    submit(client)
    say(client, 2, 3, 4)
    heard = client.pubsub()
    heard.subscribe(names.frames(JOB))
    coordinate(JOB, driver.around())
    messages = [m["data"] for m in iter(lambda: heard.get_message(timeout=0.2), None) if m["type"] == "message"]
    heard.close()
    sent = [frame for message in messages for frame in frames_decoder.decode(message)]
    assert [(frame.role, frame.index, frame.instance, frame.slot) for frame in sent] == [
        ("worker", 0, "w0.0.1", "orders")
    ]
    assert len(answered(client)) == 3


def test_a_stale_token_changes_nothing(client: Client, driver: Driver) -> None:
    submit(client)
    old = Lease.take(client, JOB)
    assert old is not None
    client.delete(names.state(JOB))  # as when "held" expires
    new = Lease.take(client, JOB)
    assert new is not None
    assert new.token == old.token + 1
    before = {key: client.dump(key) for key in client.keys("*")}
    effects = Effects(count=1, commands=b"\x90", digest="d", frames=b"\x90")
    with pytest.raises(LeaseLost, match=f"job 7: token {old.token} is stale"):
        old.commit(
            effects, Position(cursor="9-9", deadline_ms=None, over=True), first="1-1", version="1", snapshot=b"s"
        )
    with pytest.raises(LeaseLost):
        old.tick(0, log.encode_event(TimePassed()))
    for to in ("idle", "queued"):
        with pytest.raises(LeaseLost):
            old.release(to)
    assert {key: client.dump(key) for key in client.keys("*")} == before


def test_a_job_that_is_held_is_left_alone(client: Client, driver: Driver) -> None:
    submit(client)
    assert Lease.take(client, JOB) is not None
    say(client, 2)
    coordinate(JOB, driver.around())
    assert answered(client) == []


def test_an_engine_in_memory_is_used_again(client: Client, driver: Driver) -> None:
    submit(client)
    for number in (2, 3, 4):
        say(client, number)
        coordinate(JOB, driver.around())
    assert (driver.kind.made, len(answered(client))) == (1, 3)


@pytest.mark.parametrize("snapshot_after", [None, 1, 3])
def test_snapshot_and_tail_give_the_same_commands_as_memory(
    client: Client, driver: Driver, snapshot_after: int | None
) -> None:
    submit(client)
    say(client, 2, 3, 4)
    coordinate(JOB, driver.around())
    if snapshot_after is not None:
        twin = CountingEngine(State())
        for entry in logged(client)[:snapshot_after]:
            twin.handle(entry)
        client.hset(names.engine(JOB), mapping={"snapshot": twin.snapshot(), "snapshot_cursor": twin.cursor})
    driver.engines = driver.fresh_engines()
    say(client, 5, 6)
    coordinate(JOB, driver.around())
    twin = CountingEngine(State())
    expected = [command for entry in logged(client) for command in twin.handle(entry)]
    assert [command for _, _, command in answered(client)] == expected


@pytest.fixture(params=[0.0, 0.001], ids=["reads on", "gathers"])
def gathering_s(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """How long it waits after each read."""
    monkeypatch.setattr(Gathering, "pause_s", lambda *_: request.param)
    return float(request.param)


def test_what_comes_during_a_wait_is_read_after_it(
    client: Client, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gathering, "pause_s", lambda *_: 0.001)
    driver.linger_s = 60.0
    submit(client)
    ids = say(client, 2)

    def more() -> None:
        if len(ids) < 5:
            ids.extend(say(client, len(ids) + 2))
        else:
            driver.stopping.set()

    with armed("coordinator.committed", more):
        coordinate(JOB, driver.around())
    assert [cause for _, cause, _ in answered(client)] == ids


def test_shutdown_ends_a_wait_for_reports(client: Client, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gathering, "pause_s", lambda *_: 3600.0)
    submit(client)
    with armed("coordinator.committed", driver.stopping.set):
        coordinate(JOB, driver.around())
    assert client.get(names.state(JOB)) is None, "it is idle, and not held for an hour"


@pytest.mark.parametrize("point", IN_COORDINATOR)
def test_nothing_is_lost_or_doubled_where_a_coordinator_dies(
    client: Client, driver: Driver, gathering_s: float, point: str
) -> None:
    driver.kind = _with_a_deadline(driver.kind)
    driver.engines = driver.fresh_engines()
    submit(client)
    say(client, 2, 3)
    with armed(point, die), pytest.raises(Died):
        coordinate(JOB, driver.around())
    say(client, 4)
    client.delete(names.state(JOB))  # as when "held" expires
    driver.engines = driver.fresh_engines()
    coordinate(JOB, driver.around())
    log_now = logged(client)
    twin = driver.kind.new(JOB)
    expected = [command for entry in log_now for command in twin.handle(entry)]
    found = answered(client)
    assert [command for _, _, command in found] == expected
    assert [sequence for sequence, _, _ in found] == list(range(1, len(expected) + 1))
    assert sum(isinstance(entry.event, TimePassed) for entry in log_now) == 1
    assert client.get(names.state(JOB)) is None


def test_a_passed_deadline_is_reported_with_the_heartbeats(client: Client, driver: Driver) -> None:
    driver.kind = _with_a_deadline(driver.kind)
    driver.engines = driver.fresh_engines()
    client.hset(names.presence(JOB), "worker:0:w0.0.1", "1234 0.5 0.25 0 0")
    submit(client)
    coordinate(JOB, driver.around())
    assert [entry.event for entry in logged(client)][1:] == [TimePassed(seen={"worker:0:w0.0.1": 1234})]


def test_a_look_at_waiting_workers_reads_no_heartbeats(client: Client, driver: Driver) -> None:
    driver.kind = _with_a_deadline(driver.kind, looks=True)
    driver.engines = driver.fresh_engines()
    client.hset(names.presence(JOB), "worker:0:w0.0.1", "1234 0.5 0.25 0 0")
    gateways(client, a=60_000)
    submit(client)
    coordinate(JOB, driver.around())
    assert [entry.event for entry in logged(client)][1:] == [TimePassed(is_look=True)]


def gateways(client: Client, **ago_ms: int) -> None:
    for name, ago in ago_ms.items():
        RECORD_HEARTBEATS.run(client, [names.GATEWAYS], name, ago, "0 0 0 0")


@pytest.mark.parametrize(
    ("ago_ms", "why"),
    [
        ({"a": 2_500}, "no gateway has sent heartbeats for 2.5 s"),
        ({"a": 60_000}, "no gateway has sent heartbeats for 60.0 s"),
        ({"a": 100, "b": 4_000}, "the gateway on b has sent no heartbeats for 4.0 s"),
        ({"a": 100, "b": 60_000}, ""),
        ({"a": 100}, ""),
        ({}, ""),
    ],
)
def test_while_a_gateway_is_missing_deadlines_count_afresh_before_time_decides(
    client: Client, driver: Driver, ago_ms: dict[str, int], why: str
) -> None:
    driver.kind = _with_a_deadline(driver.kind)
    driver.engines = driver.fresh_engines()
    gateways(client, **ago_ms)
    submit(client)
    coordinate(JOB, driver.around())
    found = [entry.event for entry in logged(client)][1:]
    assert [event.who[: len(why) - 4] for event in found if isinstance(event, ControlPlaneResumed)] == (
        [why[:-4]] if why else []
    )
    assert found[-1] == TimePassed()


def test_a_gateway_that_goes_just_after_a_look_is_missed_before_time_decides_again(
    client: Client, driver: Driver
) -> None:
    """It had been looked for every other second only: whoever was silent with it was dead in between."""
    driver.kind = _Deadlines(driver.kind, ticks=2)
    driver.engines = driver.fresh_engines()
    gateways(client, a=100)
    submit(client)
    with armed("coordinator.ticked", lambda: gateways(client, a=2_500)):
        coordinate(JOB, driver.around())
    found = [type(entry.event) for entry in logged(client)][1:]
    assert found == [TimePassed, ControlPlaneResumed, TimePassed]


def test_a_future_deadline_is_not_reported(client: Client, driver: Driver) -> None:
    submit(client)
    lease = Lease.take(client, JOB)
    assert lease is not None
    lease.tick(int(lease.now_ms) + 60_000, log.encode_event(TimePassed()))
    assert len(logged(client)) == 1


def test_a_busy_job_makes_space_for_others(client: Client, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.runtime.coordinator.TURN_S", 0.0)
    driver.others_wait = True
    submit(client)
    driver.enqueued.clear()
    coordinate(JOB, driver.around())
    assert (driver.enqueued, client.get(names.state(JOB))) == ([JOB], b"queued")


def test_shutdown_ends_a_linger_at_once(client: Client, driver: Driver) -> None:
    driver.linger_s = 3600.0
    driver.stopping.set()
    submit(client)
    coordinate(JOB, driver.around())
    assert client.get(names.state(JOB)) == b"queued"


def test_the_end_of_a_job_is_remembered_with_its_last_snapshot(client: Client, driver: Driver) -> None:
    submit(client)
    last = log.append_event(JOB, StopRequested(actor="ann"), client=client)
    coordinate(JOB, driver.around())
    known = client.hgetall(names.engine(JOB))
    assert (known[b"over"], known[b"cursor"], known[b"snapshot_cursor"]) == (b"1", last.encode(), last.encode())


class _Deadlines:
    """Engines whose deadlines have passed long ago, until they are told so often that time passed."""

    def __init__(self, kind: object, ticks: int = 1, *, looks: bool = False) -> None:
        self.kind, self.ticks, self.looks = kind, ticks, looks

    def new(self, job: int) -> CountingEngine:
        return _DeadlineEngine(State(deadline_ms=self.ticks, looks=self.looks))

    def restore(self, snapshot: bytes) -> CountingEngine:
        import msgspec

        return _DeadlineEngine(msgspec.msgpack.decode(snapshot, type=State))


class _DeadlineEngine(CountingEngine):
    def handle(self, entry):  # type: ignore[no-untyped-def]
        if isinstance(entry.event, TimePassed):
            self._state.deadline_ms = (self._state.deadline_ms or 0) - 1 or None
        return super().handle(entry)


def _with_a_deadline(kind: object, *, looks: bool = False) -> _Deadlines:
    return _Deadlines(kind, looks=looks)


def test_a_read_that_went_along_with_a_refused_commit_is_not_left_for_the_next_holder(
    client: Client, driver: Driver
) -> None:
    submit(client)
    say(client, 2)
    with armed("coordinator.handled", lambda: client.set(names.state(JOB), "held:99")):
        coordinate(JOB, driver.around())
    assert answered(client) == []
    client.delete(names.state(JOB))
    coordinate(JOB, driver.around())
    assert len(answered(client)) == 1


def test_a_redis_that_forgot_its_scripts_is_taught_them_while_the_next_read_is_under_way(
    client: Client, driver: Driver
) -> None:
    submit(client)
    ids = say(client, 2)
    with armed("coordinator.handled", client.script_flush):
        coordinate(JOB, driver.around())
    ids += say(client, 3)
    coordinate(JOB, driver.around())
    assert [(sequence, cause) for sequence, cause, _ in answered(client)] == list(enumerate(ids, start=1))


def test_without_a_place_no_one_lingers(client: Client, driver: Driver) -> None:
    driver.linger_s, driver.places = 3600.0, Places(0, lambda: False)
    submit(client)
    coordinate(JOB, driver.around())
    assert client.get(names.state(JOB)) is None


def test_a_place_is_given_back_however_a_holding_ends(client: Client, driver: Driver) -> None:
    driver.linger_s = 3600.0
    submit(client)
    say(client, 2)
    with armed("coordinator.committed", die), pytest.raises(Died):
        coordinate(JOB, driver.around())
    assert driver.places.hold(False)
