"""Predicts the effect of moving a block to another server, with the communication model of the placement policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from controlplane.core.choices import Transfer
from controlplane.jobs.models import Job
from controlplane.policies.catalogue.placement import RebalancingParameters
from controlplane.policies.placement.communication import Line, exchange_s, lines_of, remember
from controlplane.policies.placement.loads import loads_of
from controlplane.protocol.orders import Block
from frontend.figures.placement import over_mean
from frontend.queries.exchanges import last_reports
from frontend.queries.job import ServerLine
from frontend.queries.placement import latest_placements

OFFERED = 1_500
"""Maximum number of selectable blocks, the largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One block that can be moved."""

    index: int
    server: int
    size: int
    """In bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One server now and after the move; times of one worker's exchange, None: not measured."""

    server: int
    now_bytes: int
    then_bytes: int
    now_s: float | None
    then_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A block on another server."""

    block: Offer
    target: int
    sides: tuple[Side, ...]
    now_s: float | None
    """Time of one worker's exchange with all servers in parallel."""
    then_s: float | None
    measured: int
    """Number of exchanges on which the model was fitted."""

    @property
    def now_imbalance(self) -> float:
        """Bytes on the fullest server over the mean."""
        return over_mean([side.now_bytes for side in self.sides])

    @property
    def then_imbalance(self) -> float:
        """The same after the move."""
        return over_mean([side.then_bytes for side in self.sides])

    @property
    def saved(self) -> float | None:
        """The saved fraction of the exchange time, negative if it becomes longer."""
        return 1 - self.then_s / self.now_s if self.now_s and self.then_s is not None else None


def blocks_of(job: Job) -> list[Block]:
    """All blocks of the latest placement; empty before there is one."""
    return [
        Block(index=each["index"], start=each["start"], stop=each["stop"], server=each["server"])
        for placed in latest_placements(job, 1)
        for each in placed["blocks"]
    ]


def offers(blocks: Sequence[Block]) -> list[Offer]:
    """Selectable blocks by server and index, at most ``OFFERED``."""
    largest = sorted(blocks, key=lambda block: (-block.bytes, block.index))[:OFFERED]
    found = [Offer(index=block.index, server=block.server, size=block.bytes) for block in largest]
    return sorted(found, key=lambda offer: (offer.server, offer.index))


def move(job: Job, blocks: Sequence[Block], lines: Sequence[ServerLine], index: int, target: int) -> Move:
    """The predicted result of moving block ``index`` of this job to server ``target``.

    Raises:
        ValueError: as ``predict_move``.
    """
    indices = sorted({line.index for line in lines} | {each.server for each in blocks})
    return predict_move(blocks, indices, _transfers(job) or _means(job, lines), index, target)


def predict_move(
    blocks: Sequence[Block], indices: Sequence[int], transfers: Sequence[Transfer], index: int, target: int
) -> Move:
    """The result with block ``index`` on server ``target``, one of ``indices``, predicted from ``transfers``.

    Raises:
        ValueError: if there is no such block or server, with the existing ones.
    """
    block = next((block for block in blocks if block.index == index), None)
    if block is None:
        raise ValueError(f"move: found block {index}, expected one from 0 to {len(blocks) - 1}")
    if target not in indices:
        raise ValueError(f"to: found server {target}, expected one of {', '.join(map(str, indices))}")
    then = [replace(each, server=target) if each.index == index else each for each in blocks]
    known = lines_of(remember({}, transfers, forgetting=RebalancingParameters().forgetting), indices)
    now_bytes, then_bytes = loads_of(blocks, indices), loads_of(then, indices)
    return Move(
        block=Offer(index=index, server=block.server, size=block.bytes),
        target=target,
        sides=tuple(
            Side(
                server=server,
                now_bytes=now_bytes[server],
                then_bytes=then_bytes[server],
                now_s=_alone(known, server, now_bytes),
                then_s=_alone(known, server, then_bytes),
            )
            for server in indices
        ),
        now_s=exchange_s(known, now_bytes) if known else None,
        then_s=exchange_s(known, then_bytes) if known else None,
        measured=len(transfers),
    )


def _alone(lines: Mapping[int, Line], server: int, loads: Mapping[int, int]) -> float | None:
    if server not in lines:
        return None
    return lines[server].mean(loads[server]) if loads[server] else 0.0


def _transfers(job: Job) -> list[Transfer]:
    """Recent exchanges from workers' reports; none for a simulated run, which stores no events."""
    return [
        Transfer(
            rank=rank,
            server=each.server,
            iteration=report.iteration,
            bytes=each.bytes,
            seconds=each.seconds,
            is_probe=each.is_probe,
        )
        for rank, report in last_reports(job)
        for each in report.exchanges
    ]


def _means(job: Job, lines: Sequence[ServerLine]) -> list[Transfer]:
    """Mean exchange times per server, if single exchanges are not available."""
    return [
        Transfer(rank=0, server=line.index, iteration=job.iteration, bytes=line.held_bytes, seconds=push + pull)
        for line in lines
        if (push := line.push_s) is not None and (pull := line.pull_s) is not None and line.held_bytes
    ]
