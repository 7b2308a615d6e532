"""Bytes on each server, and even assignments of blocks."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from controlplane.core.placing import cut_blocks
from controlplane.policies.wording import listing
from controlplane.protocol.orders import ELEMENT_BYTES, Block

Slice = tuple[int, int]
"""``[start, stop)`` of the flattened parameters, in elements."""

MEBIBYTE = 2**20


def bytes_of(piece: Slice) -> int:
    """The size of a slice in bytes."""
    start, stop = piece
    return (stop - start) * ELEMENT_BYTES


def loads_of(blocks: Iterable[Block], servers: Iterable[int]) -> dict[int, int]:
    """Bytes that each server holds, including servers without blocks."""
    loads = dict.fromkeys(sorted(servers), 0)
    for block in blocks:
        loads[block.server] = loads.get(block.server, 0) + block.bytes
    return loads


def lightest(loads: Mapping[int, int]) -> int:
    """The server with the fewest bytes, the lowest index among equals."""
    return min(loads, key=lambda server: (loads[server], server))


def largest_first(slices: Sequence[Slice]) -> list[int]:
    """Positions in ``slices``, sorted by decreasing size; equal ones in order."""
    return sorted(range(len(slices)), key=lambda index: (-bytes_of(slices[index]), index))


def hand_out(
    slices: Sequence[Slice], order: Sequence[int], servers: Sequence[int], choose: Callable[[int, dict[int, int]], int]
) -> list[Block]:
    """Blocks for ``slices``, placed one by one in ``order``.

    ``choose(index, loads)`` returns the server of a slice, given the present loads.

    Raises:
        ValueError: if there is no server.
    """
    ensure_servers(len(slices), servers)
    loads = dict.fromkeys(sorted(servers), 0)
    chosen: dict[int, int] = {}
    for index in order:
        chosen[index] = server = choose(index, loads)
        loads[server] += bytes_of(slices[index])
    return [
        Block(index=index, start=start, stop=stop, server=chosen[index]) for index, (start, stop) in enumerate(slices)
    ]


def balanced(slices: Sequence[Slice], servers: Sequence[int]) -> list[Block]:
    """Largest first to the server with the fewest bytes (ruling 15): equal blocks go to servers in turn."""
    return hand_out(slices, largest_first(slices), servers, lambda _, loads: lightest(loads))


def cut_tensors(tensor_sizes: Sequence[int], block_bytes: int) -> list[list[Slice]]:
    """The blocks of each tensor, in the model's order."""
    pieces: list[list[Slice]] = []
    start = 0
    for size in tensor_sizes:
        cut = cut_blocks([size], block_bytes=block_bytes)
        pieces.append([(start + low, start + high) for low, high in cut])
        start += size
    return pieces


def ensure_servers(blocks: int, servers: Sequence[int]) -> None:
    """Raise ``ValueError`` if there are blocks and no server."""
    if not servers:
        raise ValueError(f"{blocks} blocks cannot be placed: found no server, expected at least one")


def loads_in_words(loads: Mapping[int, int]) -> str:
    """``s0 5 MiB, s1 4 MiB``."""
    return listing(f"s{server} {loads[server] / MEBIBYTE:.3g} MiB" for server in sorted(loads))
