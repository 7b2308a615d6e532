"""TensorBoard, MLflow and Weights & Biases: each iteration's loss, shares and times, forwarded by rank 0.

``paceline run --tensorboard FOLDER``, ``--mlflow URI`` and ``--wandb PROJECT`` set the variables that are read here;
scripts need no change. Values that a script logs with ``pacer.log`` are forwarded as well.
"""

import atexit
import logging
import os
from collections.abc import Callable, Mapping
from typing import Final

from paceline.pacer import Pacer
from paceline.reporting import Iteration
from paceline.variables import JOB, MLFLOW, TENSORBOARD, WANDB

log = logging.getLogger("paceline")

Send = Callable[[Mapping[str, float], int], object]
"""Sends values by name, for one iteration."""


def forward(pacer: Pacer, environment: Mapping[str, str] = os.environ) -> None:
    """Make ``pacer`` forward to the trackers that ``environment`` names; a missing library is reported once."""
    if pacer.rank:
        return
    for name, connect in TRACKERS.items():
        where = environment.get(name)
        if not where:
            continue
        try:
            send = connect(where)
        except ImportError as error:
            log.warning("paceline: %s is set, but %s is not installed: nothing is forwarded", name, error.name)
            continue
        except Exception as error:
            log.warning("paceline: nothing is forwarded to %s: %s", where, error)
            continue
        pacer.subscribe(lambda iteration, send=send: send(values(iteration, pacer.shares), iteration.number))  # type: ignore[misc]


def values(iteration: Iteration, shares: tuple[int, ...]) -> dict[str, float]:
    """The forwarded values of one iteration, by name."""
    found = {
        "paceline/loss": iteration.loss,
        "paceline/iteration_s": iteration.seconds,
        "paceline/data_s": iteration.data_s,
        "paceline/compute_s": iteration.compute_s,
        "paceline/communication_s": iteration.communication_s,
        "paceline/waiting_s": iteration.waiting_s,
    }
    found |= {f"paceline/share/{rank}": float(share) for rank, share in enumerate(shares)}
    return found | {f"paceline/{name}": value for name, value in iteration.logged.items()}


def _tensorboard(folder: str) -> Send:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    atexit.register(writer.close)

    def send(found: Mapping[str, float], iteration: int) -> None:
        for name, value in found.items():
            writer.add_scalar(name, value, iteration)

    return send


def _mlflow(address: str) -> Send:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=address)
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "paceline")
    found = client.get_experiment_by_name(name)
    experiment = found.experiment_id if found is not None else client.create_experiment(name)
    run = client.create_run(experiment, run_name=f"job-{os.environ.get(JOB, 'alone')}")
    atexit.register(client.set_terminated, run.info.run_id)

    def send(values: Mapping[str, float], iteration: int) -> None:
        metrics = [mlflow.entities.Metric(name, value, _now_ms(), iteration) for name, value in values.items()]
        client.log_batch(run.info.run_id, metrics=metrics)

    return send


def _wandb(project: str) -> Send:
    import wandb

    run = wandb.init(project=project, name=f"job-{os.environ.get(JOB, 'alone')}")
    atexit.register(run.finish)
    return lambda found, iteration: run.log(dict(found), step=iteration)


def _now_ms() -> int:
    import time

    return int(time.time() * 1000)


TRACKERS: Final[Mapping[str, Callable[[str], Send]]] = {
    TENSORBOARD: _tensorboard,
    MLFLOW: _mlflow,
    WANDB: _wandb,
}
"""Trackers by the variable that names the folder, the server or the project."""
