"""Orders of scripts that agents start: where the ranks meet, and with which token they attach."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.commands import StartProcess
from controlplane.protocol.keys import ranks_token
from controlplane.protocol.orders import ProcessOrder, Script
from controlplane.protocol.spec import parse_spec
from controlplane.runtime.executor import FIRST_PORT, PORTS, JobFacts, effects_of, rendezvous_port

SPEC = parse_spec({"name": "mine", "launch": "attached", "workers": 2, "command": ["python", "train.py"]})


def facts(job: int = 7, offset: int = 0) -> JobFacts:
    return JobFacts(number=job, key=b"k" * 32, spec=SPEC, port_offset=offset)


def test_the_order_of_a_script_has_a_port_and_a_token() -> None:
    script = Script(world=2, slots=[0], address="10.0.0.1", attempt=2)
    place = {"role": "worker", "index": 0, "instance": "w0.0.2", "agent": 3, "slot": 0}
    (change,) = effects_of(facts(), [StartProcess(cause="1-0", reason="again", script=script, **place)]).changes
    order = msgspec.msgpack.decode(change.order, type=ProcessOrder)
    completed = msgspec.structs.replace(script, port=rendezvous_port(facts(), 2), token=ranks_token(b"k" * 32))
    assert (change.agent, order.script, order.spec.command) == (3, completed, SPEC.command)


def test_the_decision_shows_no_token() -> None:
    script = Script(world=2, slots=[0], address="10.0.0.1", attempt=1)
    place = {"role": "worker", "index": 0, "instance": "w0.0.1", "agent": 3, "slot": 0}
    effects = effects_of(facts(), [StartProcess(cause="1-0", reason="begins", script=script, **place)])
    assert ranks_token(b"k" * 32).encode() not in effects.commands + effects.frames


@given(job=st.integers(1, 10**9), offset=st.integers(0, 2**32), attempt=st.integers(1, 1000))
def test_attempts_and_jobs_of_one_control_plane_meet_at_different_ports(job: int, offset: int, attempt: int) -> None:
    port = rendezvous_port(facts(job, offset), attempt)
    assert FIRST_PORT <= port < FIRST_PORT + PORTS
    assert port != rendezvous_port(facts(job, offset), attempt + 1)
    assert port not in {rendezvous_port(facts(job + other, offset), attempt) for other in range(1, 50)}
