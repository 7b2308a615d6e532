"""What is done each second, whatever fails."""

import pytest

from controlplane.runtime import liveness, names, reaper, tasks
from controlplane.runtime.redis import Client
from controlplane.runtime.scripts import SEIZE

STEPS = [(tasks, "rescue"), (tasks, "_start_ingest"), (reaper, "reap_offline_agents"), (tasks, "schedule")]


@pytest.mark.parametrize("failing", [[], [0], [3], [0, 1, 2, 3]])
def test_a_step_that_fails_stops_no_other(failing: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def step(number: int) -> None:
        ran.append(number)
        if number in failing:
            raise OSError(f"step {number}")

    for number, (module, name) in enumerate(STEPS):
        monkeypatch.setattr(module, name, lambda number=number: step(number))
    if failing:
        with pytest.raises(ExceptionGroup) as raised:
            tasks.tend()
        assert [str(error) for error in raised.value.exceptions] == [f"step {number}" for number in failing]
    else:
        tasks.tend()
    assert ran == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("lease", "writers", "held"),
    [
        (None, [], False),
        ("ab12:nonce", ["ab12"], True),
        ("ab12:nonce", ["cd34"], False),
        (":nonce", [], True),
        ("no name", [], True),
    ],
)
def test_ingest_is_started_as_soon_as_it_could_take_the_lease(
    client: Client, lease: str | None, writers: list[str], held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bool] = []
    monkeypatch.setattr(tasks.ingest, "apply_async", lambda **_: sent.append(True))
    if lease is not None:
        client.set(names.INGEST_LEASE, lease)
    for name in writers:
        client.set(names.writer(name), "somewhere")
    tasks._start_ingest()
    assert (bool(sent), liveness.is_held(client, names.INGEST_LEASE)) == (not held, held)
    assert bool(SEIZE.run(client, [names.INGEST_LEASE], "ef56:nonce", 5_000)) == (not held)
