"""Avoids moves of blocks that gain nothing.

Only the bytes on each server matter, not which of several equal blocks it holds. A block that stays does not have to be
frozen, sent and committed.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

import msgspec

from controlplane.policies.placement.communication import Line, exchange_s
from controlplane.policies.placement.loads import loads_of
from controlplane.protocol.orders import Block


def moved(before: Sequence[Block], after: Sequence[Block]) -> list[Block]:
    """The blocks of ``after`` that another server held before."""
    held = {block.index: block.server for block in before}
    return [block for block in after if held.get(block.index) != block.server]


def settle(
    before: Sequence[Block],
    target: Sequence[Block],
    lines: Mapping[int, Line],
    *,
    homes: Collection[int],
    pinned: Collection[int] = (),
) -> list[Block]:
    """A placement that is as fast as ``target``, with as few moves as possible.

    First, equal blocks swap places, which does not change the bytes on any server. Then a block stays with its server
    if that does not make the exchange longer and the server is in ``homes``. ``pinned`` blocks are not changed.
    """
    held = {block.index: block.server for block in before}
    traded = _trade(held, target, pinned)
    mobile = [block for block in traded if block.index not in pinned and held.get(block.index) in homes]
    return _keep_in_place(held, traded, mobile, lines)


def _trade(held: Mapping[int, int], target: Sequence[Block], pinned: Collection[int]) -> list[Block]:
    """Reassign blocks of equal size so that as many as possible stay where they are."""
    groups: dict[int, list[Block]] = defaultdict(list)
    for block in target:
        if block.index not in pinned:
            groups[block.bytes].append(block)
    chosen = {block.index: block.server for block in target}
    for group in groups.values():
        places = Counter(block.server for block in group)
        homeless = []
        for block in group:
            home = held.get(block.index, -1)
            if places[home] > 0:
                places[home] -= 1
                chosen[block.index] = home
            else:
                homeless.append(block)
        for block, server in zip(homeless, sorted(places.elements()), strict=True):
            chosen[block.index] = server
    return [_at(block, chosen[block.index]) for block in target]


def _keep_in_place(
    held: Mapping[int, int], target: Sequence[Block], mobile: Sequence[Block], lines: Mapping[int, Line]
) -> list[Block]:
    """Return mobile blocks to their present server, largest first, while the slowest server gets no slower."""
    loads = loads_of(target, lines)
    limit = exchange_s(lines, loads)
    chosen = {block.index: block.server for block in target}
    for block in sorted(mobile, key=lambda block: (-block.bytes, block.index)):
        home = held[block.index]
        if home != block.server and lines[home].mean(loads[home] + block.bytes) <= limit:
            loads[home] += block.bytes
            loads[block.server] -= block.bytes
            chosen[block.index] = home
    return [_at(block, chosen[block.index]) for block in target]


def _at(block: Block, server: int) -> Block:
    return block if block.server == server else msgspec.structs.replace(block, server=server)
