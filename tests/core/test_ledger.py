"""The ledger notes a report exactly as the engine handles its entry, or leaves it alone."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.core.engine import Engine
from controlplane.core.events import Entry, WorkerMessageReceived
from controlplane.core.iterations import Row
from controlplane.policies import registry
from controlplane.policies.registry import resolve
from controlplane.protocol.autopilot import Autopilot
from controlplane.protocol.guard import Guard
from controlplane.protocol.messages import IterationReport
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import Recording
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.scenario import Happening, chosen
from tests.simulator.worlds import world
from tests.support.examples import examples


def row(entry: Entry) -> tuple[int, Row] | None:
    """What a driver has noted of a report; None for anything else."""
    heard = entry.event
    if not isinstance(heard, WorkerMessageReceived) or not isinstance(heard.message, IterationReport):
        return None
    said = heard.message
    measured = said.compute_s, said.push_s + said.pull_s, said.waiting_s, said.cpu, said.memory
    return said.iteration, (
        heard.rank,
        heard.instance,
        said.number,
        said.generation,
        entry.at_ms,
        said.samples,
        *measured,
    )


WATCHED: list[dict[str, Any]] = [{"autopilot": Autopilot()}, {"guard": Guard()}]
"""Jobs in which something is shown every report."""


def log_of(policy: str, seed: int, *happenings: Happening, **watched: Any) -> list[Entry]:
    recording = Recording(keep=True)
    scenario = world(wavering=Wavering(noise=0.2, spikes=0.05), happenings=happenings)
    scenario = replace(scenario, spec=replace(scenario.spec, **watched))
    Cluster(scenario, chosen(scenario, policy), seed=seed, recording=recording).run()
    return recording.entries


HAPPENINGS = [
    (),
    (Happening(kind="crash", at_s=2.0, index=2),),
    (Happening(kind="vanish", at_s=1.0, index=1), Happening(kind="exclude", at_s=3.0, index=0)),
    (Happening(kind="crash", at_s=2.0, index=1, role="server"),),
]


def refusals(engine: Engine, entry: Entry) -> list[bytes]:
    """The commands, encoded; those of a refused event are none."""
    try:
        return [msgspec.msgpack.encode(command) for command in engine.handle(entry)]
    except ValueError:
        return []


@settings(max_examples=examples(25), deadline=None)
@given(
    policy=st.sampled_from(["bsp", "bsp", "lb-bsp", *registry.names("barrier")]),
    seed=st.integers(0, 20),
    happenings=st.sampled_from(HAPPENINGS),
    watched=st.sampled_from([{}, {}, *WATCHED]),
)
def test_a_noted_report_leaves_the_engine_as_its_entry_does(
    policy: str, seed: int, happenings: tuple[Happening, ...], watched: dict[str, Any]
) -> None:
    plain, noting = Engine(job=1, resolve=resolve), Engine(job=1, resolve=resolve)
    noted = 0
    for entry in log_of(policy, seed, *happenings, **watched):
        found, ledger = row(entry), noting.open_ledger()
        before = noting.snapshot()
        if found is not None and ledger is not None and ledger.note(found[0], [found[1]]):
            noted += 1
            assert refusals(plain, entry) == []
            noting.cursor = plain.cursor
        else:
            assert noting.snapshot() == before
            assert refusals(noting, entry) == refusals(plain, entry)
        assert noting.snapshot() == plain.snapshot()
    assert policy != "bsp" or watched or noted > 0


def test_the_last_report_of_an_iteration_is_left_to_the_engine() -> None:
    engine = Engine(job=1, resolve=resolve)
    rows = []
    for entry in log_of("bsp", 0):
        found = row(entry)
        if found is None:
            engine.handle(entry)
        else:
            rows.append(found[1])
        if len(rows) == 4:
            break
    ledger = engine.open_ledger()
    assert ledger is not None
    assert ledger.note(1, rows) == 0
    assert ledger.note(0, rows) == 3


@pytest.mark.parametrize(
    ("policy", "watched"),
    [*((policy, {}) for policy in ("asp", "ssp", "backup", "aggressive")), *(("bsp", each) for each in WATCHED)],
)
def test_where_something_may_follow_from_any_report_there_is_no_ledger(policy: str, watched: dict[str, Any]) -> None:
    engine = Engine(job=1, resolve=resolve)
    for entry in log_of(policy, 0, **watched)[:60]:
        engine.handle(entry)
        assert engine.open_ledger() is None
