"""Bytes become messages in one place: round trips, limits, and nothing but ``BadFrame`` for the rest."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.codec import (
    MAX_FRAME_BYTES,
    BadFrame,
    encode,
    from_agent,
    from_server,
    from_worker,
    to_agent,
    to_worker,
)
from controlplane.protocol.messages import (
    Environment,
    Heartbeat,
    IterationReport,
    ProcessEnded,
    ProcessName,
    ServerReport,
    SlotOffer,
)
from controlplane.protocol.orders import CredentialIssued, Orders
from tests.support.rows import hello

counts = st.integers(min_value=0, max_value=2**31 - 2)
seconds = st.floats(min_value=0, max_value=1e6)
reports = st.builds(
    IterationReport,
    number=counts.map(lambda n: n + 1),
    generation=counts,
    iteration=counts,
    samples=counts,
    position=counts,
    loss=st.floats(allow_nan=False, allow_infinity=False),
    compute_s=seconds,
    push_s=seconds,
    pull_s=seconds,
    waiting_s=seconds,
    coordination_s=seconds,
    cpu=st.floats(0, 1),
    memory=st.floats(0, 1),
    overran=st.booleans(),
)
orders = st.builds(
    Orders,
    incarnation=counts,
    generation=counts,
    sequence=counts,
    share=counts,
    offset=counts,
    global_batch=counts.map(lambda n: n + 1),
    origin_iteration=counts,
    origin_position=counts,
    share_from=counts,
    share_until=counts,
    watermark=st.integers(-1, 2**31 - 1),
    placement_version=counts,
    stop_at=st.none() | counts,
)


@given(reports)
def test_decoded_report_equals_the_encoded_one(report):
    assert from_worker.decode(encode(report)) == report


@given(orders)
def test_decoded_orders_equal_the_encoded_ones(given_orders):
    assert to_worker.decode(encode(given_orders)) == given_orders


def refusal(codec, frame):
    """The code with which the frame is refused; None if it is a message. Nothing else may be raised."""
    try:
        codec.decode(frame)
    except BadFrame as error:
        return error.code
    return None


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_bad_frame(data):
    assert {refusal(codec, data) for codec in (from_worker, from_server, from_agent)} <= {None, "malformed"}


@given(reports, st.data())
def test_damaged_report_is_a_message_or_a_bad_frame(report, data):
    frame = bytearray(encode(report))
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    assert refusal(from_worker, bytes(frame)) in {None, "malformed"}


def test_frame_over_the_limit_is_oversized():
    with pytest.raises(BadFrame, match=f"at most {MAX_FRAME_BYTES} are accepted") as caught:
        from_worker.decode(b"\x00" * (MAX_FRAME_BYTES + 1))
    assert caught.value.code == "oversized"


def test_deeply_nested_frame_is_malformed():
    with pytest.raises(BadFrame):
        from_worker.decode(b"\x91" * 100_000)


def test_message_of_another_socket_is_malformed():
    report = ServerReport(number=1, iteration=0, bytes_in=0, bytes_out=0, busy_s=0.0)
    with pytest.raises(BadFrame, match="not a message of this socket"):
        from_worker.decode(encode(report))


def test_negative_duration_is_malformed():
    frame = msgspec.msgpack.encode({"type": "heartbeat", "cpu": 1.5})
    with pytest.raises(BadFrame, match=r"Expected `float` <= 1.0 - at `\$.cpu`"):
        from_worker.decode(frame)


def test_newer_peer_may_report_more():
    frame = msgspec.msgpack.encode({"type": "heartbeat", "cpu": 0.5, "gpu": 0.9})
    assert from_worker.decode(frame) == Heartbeat(cpu=0.5)


def test_process_ended_survives_the_wire():
    name = ProcessName(job=7, role="worker", index=3, instance="w3.0.1")
    ended = ProcessEnded(number=4, process=name, status=-9, tail="Killed\n")
    assert from_agent.decode(encode(ended)) == ended


@given(orders, orders)
def test_orders_compare_by_incarnation_then_generation_then_sequence(one, other):
    key = (one.incarnation, one.generation, one.sequence) > (other.incarnation, other.generation, other.sequence)
    assert (one.rank_in_time > other.rank_in_time) is key


def test_iteration_is_the_sum_of_its_parts():
    report = IterationReport(
        number=1,
        generation=1,
        iteration=0,
        samples=64,
        position=0,
        loss=2.3,
        compute_s=0.5,
        push_s=0.25,
        pull_s=0.125,
        waiting_s=1.0,
        coordination_s=0.0625,
    )
    assert (report.iteration_s, report.busy_s) == (1.9375, 0.875)


def test_a_credential_crosses_the_wire_and_does_not_show_itself():
    told = CredentialIssued(secret="topsecret" * 5)
    assert to_agent.decode(encode(told)) == told
    assert "topsecret" not in f"{told} {told!r}"


@pytest.mark.parametrize(
    ("offer", "field"),
    [
        ({"slots": [SlotOffer()] * 1_025}, "array` of length <= 1024 - at `$.slots"),
        ({"server_slots": 2_000_000}, "int` <= 1024 - at `$.server_slots"),
        ({"labels": {str(number): "x" for number in range(65)}}, "object` of length <= 64 - at `$.labels"),
        ({"labels": {"gpu": "x" * 201}}, "str` of length <= 200 - at `$.labels[...]"),
        ({"labels": {"x" * 101: "a100"}}, "str` of length <= 100 - at `key` in `$.labels"),
        ({"host": "x" * 256}, "str` of length <= 255 - at `$.host"),
        ({"version": "x" * 101}, "str` of length <= 100 - at `$.version"),
        ({"cpu_count": 2**20 + 1}, "int` <= 1048576 - at `$.cpu_count"),
        ({"memory_bytes": 2**60 + 1}, "int` <= 1152921504606846976 - at `$.memory_bytes"),
        ({"environment": Environment(device="x" * 10_001)}, "str` of length <= 10000 - at `$.environment.device"),
        (
            {"running": [ProcessName(job=1, role="worker", index=0, instance="a")] * 4_097},
            "array` of length <= 4096 - at `$.running",
        ),
    ],
)
def test_a_machine_that_offers_more_than_any_may_is_refused_with_the_most(offer, field):
    with pytest.raises(BadFrame) as refused:
        from_agent.decode(encode(hello(**offer)))
    assert field in str(refused.value)


def test_a_machine_may_offer_1024_slots_of_each_kind():
    said = hello(slots=1_024, server_slots=1_024)
    assert from_agent.decode(encode(said)) == said
