import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.transport.errors import BadHeader, Oversized
from workers.transport.frames import (
    HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    Header,
    Op,
    decode_header,
    encode_header,
)

numbers = st.integers(0, 2**32 - 1)
headers = st.builds(
    Header,
    op=st.sampled_from(Op),
    checked=st.booleans(),
    incarnation=numbers,
    generation=numbers,
    placement=numbers,
    iteration=numbers,
    block=numbers,
    rank=numbers,
    samples=numbers,
    length=st.integers(0, MAX_PAYLOAD_BYTES),
    held_s=st.floats(0.0, 1e6),
    payload_checksum=numbers,
)


@given(headers)
def test_decode_gives_back_what_was_encoded(header: Header) -> None:
    frame = encode_header(header)
    assert len(frame) == HEADER_BYTES
    assert decode_header(frame) == header


@given(headers, st.integers(0, HEADER_BYTES * 8 - 1))
def test_no_altered_bit_goes_unnoticed(header: Header, bit: int) -> None:
    frame = bytearray(encode_header(header))
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadHeader):
        decode_header(frame)


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
def test_noise_is_no_frame(noise: bytes) -> None:
    with pytest.raises(BadHeader, match="expected b'PACE' version 1"):
        decode_header(noise)


def test_a_payload_over_the_limit_names_both_sizes() -> None:
    frame = encode_header(Header(op=Op.PUSH, length=1025))
    with pytest.raises(Oversized, match="payload of 1025 bytes announced, at most 1024 are accepted here"):
        decode_header(frame, limit=1024)


def test_a_header_takes_one_cache_line_at_most() -> None:
    assert HEADER_BYTES == 56 <= 64
