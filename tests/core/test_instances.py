"""Names of instances: made with a secret from outside, so that no other machine can guess them."""

from controlplane.core.commands import StartProcess
from controlplane.core.engine import Engine
from controlplane.core.events import Assignment, Entry, JobSubmitted, SlotsAssigned
from controlplane.policies.registry import resolve
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import log, names
from controlplane.runtime.redis import Client, connect

SPEC = parse_spec({"name": "a", "workload": "mlp", "workers": 2, "batch_size": 8, "stop": {"iterations": 9}, "seed": 5})
SLOTS = [Assignment(role="worker", index=rank, agent=1, slot=rank) for rank in range(2)]
SLOTS.append(Assignment(role="server", index=0, agent=1, slot=0))


def started(salt: bytes, *, again: bool = False) -> list[str]:
    engine = Engine(job=7, resolve=resolve)
    engine.handle(Entry(id="1000-0", event=JobSubmitted(spec=SPEC, salt=salt)))
    if again:
        engine = Engine.restore(engine.snapshot(), resolve=resolve)
    commands = engine.handle(Entry(id="1001-0", event=SlotsAssigned(assignments=SLOTS)))
    return [command.instance for command in commands if isinstance(command, StartProcess)]


def test_instances_are_distinguished_by_a_secret_of_64_bits():
    first, second = started(b"a" * 16), started(b"b" * 16)
    assert [name.rpartition(".")[0] for name in first] == ["w0.0.1", "w1.0.1", "s0.0.1"]
    secrets = [name.rpartition(".")[2] for name in first + second]
    assert len(set(secrets)) == 6, "one tells nothing of another, and equal seeds of equal jobs give other ones"
    assert {len(bytes.fromhex(secret)) for secret in secrets} == {8}


def test_a_replay_and_a_snapshot_give_the_same_instances():
    assert started(b"a" * 16) == started(b"a" * 16) == started(b"a" * 16, again=True)


def test_a_log_without_a_secret_counts_instances():
    assert started(b"") == ["w0.0.1", "w1.0.1", "s0.0.1"]


def test_every_log_begins_with_a_secret_of_its_own(redis_url: str, monkeypatch):
    monkeypatch.setattr("controlplane.runtime.queue.enqueue", lambda job: None)
    client: Client = connect()
    for job in (1, 2):
        assert log.start_log(job, SPEC, client=client)
    (first,), (second,) = (log.read_entries(client, job, after="0-0", count=9, block_s=0) for job in (1, 2))
    assert len(first.event.salt) == len(second.event.salt) == 16
    assert first.event.salt != second.event.salt
    assert client.exists(names.events(1))
    client.close()
