"""Batches of a relay: what is put into one, in which order, and how large it may be."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.codec import encode
from controlplane.protocol.relay import Batch, Opening, Outgoing, from_relay, opening_of, to_relay


def taken(outgoing: Outgoing) -> list[Batch]:
    """All batches that wait."""
    batches = []
    while outgoing:
        batches.append(to_relay.decode(outgoing.take()))
    return batches


def test_what_waits_is_one_batch() -> None:
    outgoing = Outgoing(100)
    outgoing.open(1, b"who")
    outgoing.add(1, b"hello")
    outgoing.add(2, b"report")
    outgoing.close(2, 4409)
    outgoing.alive([7, 2])
    outgoing.alive({2, 1})
    assert taken(outgoing) == [Batch([(1, b"who")], [(1, b"hello"), (2, b"report")], [(2, 4409)], [1, 2, 7])]
    outgoing.alive([3])
    assert taken(outgoing) == [Batch([], [], [], [3])]


def test_a_batch_of_an_earlier_release_reports_no_beats() -> None:
    assert from_relay.decode(msgspec.msgpack.encode([[], [[1, b"report"]], []])) == Batch([], [(1, b"report")], [])


@given(
    frames=st.lists(st.tuples(st.integers(1, 5), st.binary(max_size=60)), max_size=40),
    most_bytes=st.integers(1, 100),
)
def test_frames_keep_their_order_and_a_channel_ends_behind_its_frames(
    frames: list[tuple[int, bytes]], most_bytes: int
) -> None:
    outgoing = Outgoing(most_bytes)
    for channel, frame in frames:
        outgoing.add(channel, frame)
    outgoing.close(1)
    batches = taken(outgoing)
    assert [frame for batch in batches for frame in batch.frames] == frames
    assert [batch.closed for batch in batches] == [[]] * (len(batches) - 1) + [[(1, 0)]]
    for batch in batches:
        assert len(batch.frames) <= 1 or sum(len(frame) for _, frame in batch.frames) <= most_bytes


def test_a_lost_connection_leaves_nothing_for_the_next() -> None:
    outgoing = Outgoing(100)
    outgoing.open(1, b"who")
    outgoing.add(1, b"hello")
    outgoing.close(1)
    outgoing.alive([1])
    outgoing.clear()
    assert (bool(outgoing), outgoing.waiting_bytes) == (False, 0)


def test_an_opening_survives_encoding() -> None:
    opening = Opening(job=7, role="worker", index=3, instance="w3.0.1", key="5e" * 32)
    assert opening_of.decode(encode(opening)) == opening
