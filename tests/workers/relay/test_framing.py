"""Frames of the local socket: whole, in order, and within limits, however the bytes arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.relay.framing import BEAT, CLOSE, FRAME, OPEN, BadFraming, Frames, code_of, packed, packed_close

KINDS = st.sampled_from([OPEN, FRAME, CLOSE, BEAT])


@given(
    frames=st.lists(st.tuples(KINDS, st.binary(max_size=30)), max_size=20),
    cuts=st.lists(st.integers(1, 40), min_size=1),
)
def test_frames_are_found_however_the_stream_is_cut(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    stream, reader = b"".join(packed(*frame) for frame in frames), Frames(30)
    found, start, turn = [], 0, 0
    while start < len(stream):
        found += reader.feed(stream[start : start + cuts[turn % len(cuts)]])
        start, turn = start + cuts[turn % len(cuts)], turn + 1
    assert found == frames


@pytest.mark.parametrize("stream", [b"\x00\x00\x00\x00\x00", b"\x09\x00\x00\x00\x00", packed(FRAME, b"x" * 31)])
def test_an_unknown_kind_or_a_frame_that_is_too_large_is_refused(stream: bytes) -> None:
    with pytest.raises(BadFraming, match="at most 30 are accepted"):
        Frames(30).feed(stream)


def test_a_close_code_survives() -> None:
    ((kind, payload),) = Frames(30).feed(packed_close(4409))
    assert (kind, code_of(payload)) == (CLOSE, 4409)
    with pytest.raises(BadFraming, match="3 bytes, expected 2"):
        code_of(b"abc")
