"""Flower: a strategy that sets each client's batch size by LB-BSP, and a client mod that measures training times.

    from paceline.adapters.flower import paced, timed

    client_app = ClientApp(mods=[timed])
    strategy = paced(FedAvg(...), clients=8, local_steps=20)

The job's ``batch_size`` is a client's samples in one round: ``local_steps`` times its batch. ``sample_multiple`` is
``local_steps``. In each round a client reads its batch size from ``config["batch-size"]``. Clients are the job's ranks,
in the order in which they first took part; a client that fails or is not sampled reports an iteration without samples.
A pause delays the next round. After the job was stopped, the remaining rounds train no client, and ``start`` returns
the arrays of the last one. Without a control plane strategies and clients are not changed.
"""

import atexit
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from flwr.app import ConfigRecord, Message, RecordDict

from paceline.address import socket_address
from paceline.ranks import RemoteRank, close_all
from paceline.variables import target

FIRST_ORDERS_S = 3.0
"""How long the first round may wait for the control plane."""

PAUSE_POLL_S = 0.2
"""How often a paused federation checks whether it may continue."""

SECONDS = "paceline-seconds"
"""The metric in which a client reports how long its training took."""

BATCH_SIZE = "batch-size"
"""The key of the batch size in a client's configuration."""

log = logging.getLogger("paceline")

Strategy = TypeVar("Strategy", bound=Any)


def timed(message: Message, context: Any, call_next: Callable[[Message, Any], Message]) -> Message:
    """A client mod for ``ClientApp``: adds the training time to the client's metrics."""
    begin_s = time.perf_counter()
    reply = call_next(message, context)
    if message.metadata.message_type.startswith("train") and reply.has_content():
        for record in reply.content.metric_records.values():
            record[SECONDS] = time.perf_counter() - begin_s
    return reply


def paced(strategy: Strategy, *, clients: int, local_steps: int = 1) -> Strategy:
    """Return ``strategy`` with each client's batch size set by its speed.

    Args:
        strategy: with ``configure_train`` and ``aggregate_train``, as those of ``flwr.serverapp.strategy``.
        clients: how many there are: the job's ``workers``.
        local_steps: steps of a client in one round.

    Raises:
        CannotAttach: if address or job number cannot be used.
    """
    aim = target()
    if not aim.missing:
        _Federation(strategy, clients, local_steps, url=aim.url, job=aim.number, token=aim.token).take_over()
    return strategy


class _Federation:
    """The clients of one strategy, as ranks of a job. A problem during a round is logged once and not raised."""

    def __init__(self, strategy: Any, clients: int, steps: int, *, url: str, job: int, token: str) -> None:
        socket_address(url, "/")  # an address that cannot be used is refused before the first round
        self.strategy, self.clients, self.steps = strategy, clients, steps
        self.url, self.job, self.token = url, job, token
        self.configure, self.aggregate = strategy.configure_train, strategy.aggregate_train
        self.configure_evaluate = strategy.configure_evaluate
        self.ranks: list[RemoteRank] = []
        self.rank_of: dict[int, int] = {}
        """By node."""
        self.sent_s = 0.0
        self.is_over = False
        """Whether the job was stopped."""
        self.logged: set[str] = set()

    def take_over(self) -> None:
        self.strategy.configure_train, self.strategy.aggregate_train = self.configured, self.aggregated
        self.strategy.configure_evaluate = self.configured_evaluation

    def configured(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Message]:
        self._await_leave(server_round)
        if self.is_over:
            return []
        messages = list(self.configure(server_round, arrays, config, grid))
        for message in messages:
            self._set_batch(message)
        self.sent_s = time.perf_counter()
        return messages

    def configured_evaluation(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Message]:
        return [] if self.is_over else self.configure_evaluate(server_round, arrays, config, grid)

    def aggregated(self, server_round: int, replies: Iterable[Message]) -> Any:
        if self.is_over:
            return None, None
        found, round_s = list(replies), time.perf_counter() - self.sent_s
        trained = {self._rank_of(reply.metadata.src_node_id): self._metrics(reply) for reply in found}
        for rank in self.ranks:
            self._report(rank, trained.get(rank.rank, {}), round_s)
        return self.aggregate(server_round, found)

    def _await_leave(self, server_round: int) -> None:
        """Delay a round while the job is paused; check whether the job is stopped."""
        while True in [rank.held for rank in self.ranks]:  # each rank is checked, and reports that it is paused
            time.sleep(PAUSE_POLL_S)
        if not self.is_over and any(rank.stopped for rank in self.ranks):
            self.is_over = True
            self._log(f"the job was stopped before round {server_round}: no client trains in the remaining rounds")
            close_all(self.ranks)

    def _set_batch(self, message: Message) -> None:
        given = message.content.config_records
        name = next((name for name, record in given.items() if BATCH_SIZE in record), None)
        if name is None:
            self._log(
                f'paced(): the train configuration has no "{BATCH_SIZE}", so none is set; give one in train_config'
            )
            return
        if not self.ranks:
            self._connect(int(given[name][BATCH_SIZE]))
        if (rank := self._rank_of(message.metadata.dst_node_id)) is not None:
            content = RecordDict(dict(message.content))  # the records are shared by all messages
            share = max(1, self.ranks[0].shares[rank] // self.steps)
            content[name] = ConfigRecord(dict(given[name]) | {BATCH_SIZE: share})
            message.content = content

    def _metrics(self, reply: Message) -> dict[str, Any]:
        """Metrics of a client that was timed; none of one that failed. The added entries are removed from the reply."""
        if not reply.has_content():
            return {}
        metrics: dict[str, Any] = {}
        for record in reply.content.metric_records.values():
            metrics |= dict(record)
            record.pop(SECONDS, None)
        if SECONDS in metrics:
            return metrics
        self._log("paced(): clients do not report their training time, so shares stay: ClientApp(mods=[timed])")
        return {}

    def _report(self, rank: RemoteRank, metrics: dict[str, Any], round_s: float) -> None:
        """Report the rank's part in the round; without metrics it had no samples."""
        trained_s = float(metrics.get(SECONDS, 0.0))
        weight = getattr(self.strategy, "weighted_by_key", "num-examples")
        rank.report(
            samples=int(metrics.get(weight, rank.share)) if metrics else 0,
            compute_s=trained_s,
            waiting_s=max(0.0, round_s - trained_s),
            loss=float(metrics.get("loss", metrics.get("train-loss", 0.0))),
        )

    def _rank_of(self, node: int) -> int | None:
        if node not in self.rank_of and len(self.rank_of) < self.clients:
            self.rank_of[node] = len(self.rank_of)
        if node not in self.rank_of:
            self._log(
                f"paced(): more than {self.clients} clients took part; the others keep the batch of the configuration:"
                " give clients= their number"
            )
        return self.rank_of.get(node)

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
        atexit.register(close_all, self.ranks)
        for rank in self.ranks:
            rank.await_orders(FIRST_ORDERS_S)

    def _log(self, sentence: str) -> None:
        if sentence not in self.logged:
            self.logged.add(sentence)
            log.warning("paceline: %s", sentence)
