"""Flower: a strategy that sets each client's batch size by LB-BSP for federations, and a modifier that times clients.

    from paceline.adapters.flower import paced, timed

    client_app = ClientApp(mods=[timed])
    strategy = paced(FedAvg(...), clients=8, local_steps=20)

The job's ``batch_size`` is a client's samples of one round, ``local_steps`` times its batch, and ``sample_multiple`` is
``local_steps``. Each round every client that trains finds its batch in ``config["batch-size"]``. Clients are the job's
ranks, by the order in which they first took part. Without a control plane strategies and clients are Flower's own.
"""

import atexit
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from flwr.app import ConfigRecord, Message, RecordDict

from paceline.errors import CannotAttach
from paceline.ranks import RemoteRank
from paceline.variables import target

FIRST_ORDERS_S = 3.0
"""How long the first round may wait for the control plane."""

SECONDS = "paceline-seconds"
"""The metric by which a client says how long its training took."""

Strategy = TypeVar("Strategy", bound=Any)


def timed(message: Message, context: Any, call_next: Callable[[Message, Any], Message]) -> Message:
    """A modifier of ``ClientApp``: adds to the client's metrics how long it trained."""
    begin_s = time.perf_counter()
    reply = call_next(message, context)
    if message.metadata.message_type.startswith("train") and reply.has_content():
        for record in reply.content.metric_records.values():
            record[SECONDS] = time.perf_counter() - begin_s
    return reply


def paced(strategy: Strategy, *, clients: int, local_steps: int = 1) -> Strategy:
    """``strategy``, each client's batch set by its speed.

    Args:
        strategy: with ``configure_train`` and ``aggregate_train``, as those of ``flwr.serverapp.strategy``.
        clients: how many there are: the job's ``workers``.
        local_steps: steps of a client in one round.

    Raises:
        CannotAttach: if its train configuration has no batch size, or address or job number cannot be used.
    """
    aim = target()
    if not aim.missing:
        _Federation(strategy, clients, local_steps, url=aim.url, job=aim.number, token=aim.token).take_over()
    return strategy


class _Federation:
    """The clients of one strategy, as ranks of a job."""

    def __init__(self, strategy: Any, clients: int, steps: int, *, url: str, job: int, token: str) -> None:
        self.strategy, self.clients, self.steps = strategy, clients, steps
        self.url, self.job, self.token = url, job, token
        self.configure, self.aggregate = strategy.configure_train, strategy.aggregate_train
        self.ranks: list[RemoteRank] = []
        self.rank_of: dict[int, int] = {}
        """By node."""
        self.sent_s = 0.0

    def take_over(self) -> None:
        self.strategy.configure_train, self.strategy.aggregate_train = self.configured, self.aggregated

    def configured(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Message]:
        if "batch-size" not in config:
            raise CannotAttach('paced(): the train configuration has no "batch-size"; give one in train_config')
        if not self.ranks:
            self._connect(int(config["batch-size"]))
        messages = list(self.configure(server_round, arrays, config, grid))
        shares = self.ranks[0].shares
        for message in messages:
            rank = self._rank_of(message.metadata.dst_node_id)
            content = RecordDict(dict(message.content))
            content[self.strategy.configrecord_key] = ConfigRecord(
                dict(config) | {"batch-size": max(1, shares[rank] // self.steps)}
            )
            message.content = content
        self.sent_s = time.perf_counter()
        return messages

    def aggregated(self, server_round: int, replies: Iterable[Message]) -> Any:
        found = list(replies)
        round_s = time.perf_counter() - self.sent_s
        for reply in found:
            if not reply.has_error():
                self._report(reply, round_s)
        return self.aggregate(server_round, found)

    def _report(self, reply: Message, round_s: float) -> None:
        rank = self.ranks[self._rank_of(reply.metadata.src_node_id)]
        metrics: dict[str, Any] = {}
        for record in reply.content.metric_records.values():
            metrics |= dict(record)
            record.pop(SECONDS, None)
        if SECONDS not in metrics:
            raise CannotAttach(f"paced(): client {rank.rank} did not report its training time: ClientApp(mods=[timed])")
        samples = int(metrics.get(self.strategy.weighted_by_key, rank.share))
        rank.report(
            samples=samples,
            compute_s=float(metrics[SECONDS]),
            waiting_s=max(0.0, round_s - float(metrics[SECONDS])),
            loss=float(metrics.get("loss", metrics.get("train-loss", 0.0))),
        )

    def _rank_of(self, node: int) -> int:
        rank = self.rank_of.setdefault(node, len(self.rank_of))
        if rank >= self.clients:
            raise CannotAttach(f"paced(): more than {self.clients} clients took part; give clients= their number")
        return rank

    def _connect(self, batch_size: int) -> None:
        self.ranks = [
            RemoteRank(
                self.url,
                self.job,
                self.token,
                rank=rank,
                world=self.clients,
                batch_size=batch_size * self.steps,
                launcher="flower",
            )
            for rank in range(self.clients)
        ]
        for rank in self.ranks:
            rank.await_orders(FIRST_ORDERS_S)
            atexit.register(rank.close)
