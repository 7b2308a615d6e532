"""Rounds of a Flower strategy with clients that are made up, and a control plane that is one of the tests'.

In the adapters' environment: ``flower_rounds.py`` prints what each case was: what clients were told, what was reported.
"""

import json
import logging
import os
import random
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from controlplane.protocol.messages import IterationReport, Quiesced, WorkerFinished
from paceline.adapters.flower import SECONDS, paced
from paceline.variables import JOB, TOKEN, URL
from tests.paceline.plane import Plane
from tests.paceline.ranks import shared
from tests.protocol.orders import orders
from tests.support.waiting import eventually

CLIENTS, ROUNDS, BATCH = 3, 5, 32

Reply = Callable[[int, int], dict[str, float] | None]
"""The metrics of a client in a round; None: it fails."""


class Clients:
    """In place of Flower's grid: each client answers at once."""

    def __init__(
        self, reply: Reply, *, before: Callable[["Clients", int], None] = lambda clients, number: None
    ) -> None:
        self.reply, self.before = reply, before
        self.federation: Any = None
        self.batches: list[dict[int, int]] = []
        """By round and client."""

    def get_node_ids(self) -> list[int]:
        return [100 + client for client in range(CLIENTS)]

    def send_and_receive(self, messages: Iterable[Message], timeout: float) -> list[Message]:
        sent = list(messages)
        if sent:
            self.before(self, len(self.batches))
            self.batches.append({})
        return [self._answer(message, len(self.batches) - 1) for message in sent]

    def _answer(self, message: Message, number: int) -> Message:
        client = message.metadata.dst_node_id - 100
        (config,) = message.content.config_records.values()
        self.batches[number][client] = int(config.get("batch-size", 0))
        metrics = self.reply(number, client)
        if metrics is None:
            return Message(Error(code=1, reason="out of memory"), reply_to=message)
        (arrays,) = message.content.array_records.values()
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), reply_to=message)


def well(number: int, client: int) -> dict[str, float]:
    return {"num-examples": 10 + client, SECONDS: 0.5 * (1 + client)}


def run(plane: Plane, clients: Clients, *, named: int = CLIENTS, fraction: float = 1.0, batch: bool = True) -> Any:
    """The result of a whole federation."""
    os.environ |= {URL: plane.url, JOB: "1", TOKEN: "plj_x"}
    strategy = FedAvg(fraction_train=fraction, fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=CLIENTS)
    governed = paced(strategy, clients=named)
    clients.federation = governed.configure_train.__self__
    return governed.start(
        grid=clients,
        initial_arrays=ArrayRecord(),
        num_rounds=ROUNDS,
        train_config=ConfigRecord({"batch-size": BATCH} if batch else {}),
    )


def reports(plane: Plane, clients: int = CLIENTS) -> list[list[list[int]]]:
    """Iteration and samples, by rank."""
    said = [plane.said(IterationReport, rank) for rank in range(clients)]
    return [[[report.iteration, report.samples] for report in each] for each in said]


def heard(plane: Plane, rounds: int, clients: int = CLIENTS) -> list[list[list[int]]]:
    eventually(lambda: all(len(each) == rounds for each in reports(plane, clients)), what="every report", seconds=30)
    return reports(plane, clients)


def failing() -> Any:
    """Client 1 fails in round 1, and only two of three are asked in each."""
    random.seed(3)
    with Plane() as plane:
        plane.orders = shared(1, 48, 32, 16)
        clients = Clients(lambda number, client: None if (number, client) == (1, 1) else well(number, client))
        run(plane, clients, fraction=0.67)
        return [clients.batches, heard(plane, ROUNDS)]


def stopped() -> Any:
    """The job is stopped in round 2."""
    with Plane() as plane:

        def stop(clients: Clients, number: int) -> None:
            if number == 1:
                plane.say(orders(sequence=2, stop_at=1))
                eventually(
                    lambda: all(rank.stopped for rank in clients.federation.ranks), what="the stop at every rank"
                )

        clients = Clients(well, before=stop)
        result = run(plane, clients)
        eventually(lambda: len(plane.said(WorkerFinished)) == CLIENTS, what="the end of every rank", seconds=30)
        return [
            len(clients.batches),
            [each.iteration for each in plane.said(WorkerFinished)],
            result.arrays is not None,
        ]


def paused() -> Any:
    """The job is paused in round 2, and continues once every rank has said that it is."""
    with Plane() as plane:

        def resume() -> None:
            eventually(lambda: len(held()) == CLIENTS, what="the pause of every rank")
            plane.say(shared(3, 40, 40, 16))

        def held() -> list[int]:
            return [rank for rank in range(CLIENTS) if plane.said(Quiesced, rank)]

        def pause(clients: Clients, number: int) -> None:
            if number == 1:
                plane.say(shared(2, 40, 40, 16, hold=True))
                eventually(
                    lambda: all(rank.share != BATCH for rank in clients.federation.ranks),
                    what="the pause at every rank",
                )

        operator = threading.Thread(target=resume)
        operator.start()
        clients = Clients(well, before=pause)
        run(plane, clients)
        operator.join()
        return [len(clients.batches), held()]


def untimed(number: int, client: int) -> dict[str, float]:
    return {"num-examples": 9}


def unfit() -> Any:
    """One client too many, clients that are not timed, and a configuration without a batch."""
    found = []
    kinds: list[tuple[dict[str, Any], Reply]] = [({"named": 2}, well), ({}, untimed), ({"batch": False}, well)]
    for options, reply in kinds:
        with Plane() as plane:
            clients = Clients(reply)
            result = run(plane, clients, **options)
            found.append([len(clients.batches), clients.batches[-1], result.arrays is not None])
    return found


if __name__ == "__main__":
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1  # of the server's process
    sentences: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: sentences.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("paceline").addHandler(handler)
    cases = {case.__name__: case() for case in (failing, stopped, paused, unfit)}
    sys.stdout.write("\n" + json.dumps(cases | {"sentences": sentences}))
