"""Which copies of blocks a worker has whole, whatever happens to a pull."""

import pytest

from workers.trainer.copies import Copies, Copy
from workers.transport.errors import ConnectionClosed
from workers.transport.frames import Header, Op


def receive(copies: Copies, memory: bytearray, values: bytes, version: int, *, block: int = 0) -> None:
    """Values of a block come, as many as there are before the connection ends."""
    with copies.receiving(
        Header(op=Op.VALUES, block=block, iteration=version, samples=10 * version), memoryview(memory)
    ):
        memory[: len(values)] = values
        if len(values) < len(memory):
            raise ConnectionClosed("peer gone")


def test_a_whole_pull_is_a_copy_of_its_version() -> None:
    copies, memory = Copies(), bytearray(4)
    receive(copies, memory, b"aaaa", 3)
    assert copies.held([0, 1]) == {0: Copy(3, 30)}
    assert copies.read(0, memoryview(memory)) == (b"aaaa", Copy(3, 30))


def test_a_guarded_block_keeps_its_older_copy_when_a_pull_breaks_off() -> None:
    copies, memory = Copies(), bytearray(4)
    receive(copies, memory, b"aaaa", 3)
    with pytest.raises(ConnectionClosed):
        receive(copies, memory, b"bb", 4)
    assert copies.read(0, memoryview(memory)) == (b"aaaa", Copy(3, 30))


def test_no_other_has_a_copy_of_what_broke_off() -> None:
    copies, memory = Copies(lambda block: False), bytearray(4)
    receive(copies, memory, b"aaaa", 3)
    with pytest.raises(ConnectionClosed):
        receive(copies, memory, b"bb", 4)
    assert copies.held([0]) == {}
    assert copies.read(0, memoryview(memory)) is None


def test_messages_of_a_lost_server_are_dropped() -> None:
    copies, memory = Copies(), bytearray(4)
    receive(copies, memory, b"aaaa", 3)
    copies.distrust([0])
    with pytest.raises(ConnectionClosed, match="the server of block 0 was lost"):
        receive(copies, memory, b"bbbb", 4)
    assert copies.read(0, memoryview(memory)) == (b"aaaa", Copy(3, 30))
    copies.trust([0])
    receive(copies, memory, b"cccc", 5)
    assert copies.held([0]) == {0: Copy(5, 50)}
