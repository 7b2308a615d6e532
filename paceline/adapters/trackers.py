"""TensorBoard, MLflow and Weights & Biases: each iteration's loss, shares and times, forwarded by rank 0.

``paceline run --tensorboard FOLDER``, ``--mlflow URI`` and ``--wandb PROJECT`` set the variables that are read here;
scripts need no change. Values that a script logs with ``pacer.log`` are forwarded as well. Libraries are imported by
the script's thread; everything else, connecting included, happens on the thread of a ``Forwarding``.
"""

import atexit
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from paceline.forwarding import Forwarding, Point, Tracker
from paceline.pacer import Pacer
from paceline.reporting import Iteration
from paceline.variables import JOB, MLFLOW, TENSORBOARD, WANDB

MOST_METRICS: Final = 1_000
"""MLflow accepts as many in one request."""

log = logging.getLogger("paceline")


def forward(pacer: Pacer, environment: Mapping[str, str] = os.environ) -> None:
    """Make ``pacer`` forward to the trackers that ``environment`` names; a missing library is reported once."""
    if pacer.rank:
        return
    for name, tracker_at in TRACKERS.items():
        where = environment.get(name)
        if not where:
            continue
        try:
            tracker = tracker_at(where)
        except ImportError as error:
            log.warning("paceline: %s is set, but %s is not installed: nothing is forwarded", name, error.name)
            continue
        except Exception as error:
            log.warning("paceline: nothing is forwarded to %s: %s", where, error)
            continue
        # Libraries register handlers for the end of the process when they connect. Handlers run in reverse order: the
        # pacer's is registered again, so that it still finds the tracker open.
        pacer.forward(Forwarding(where, tracker, opened=lambda: atexit.register(pacer.close)))


def values(iteration: Iteration) -> dict[str, float]:
    """The forwarded values of one iteration, by name."""
    found = {
        "paceline/loss": iteration.loss,
        "paceline/iteration_s": iteration.seconds,
        "paceline/data_s": iteration.data_s,
        "paceline/compute_s": iteration.compute_s,
        "paceline/communication_s": iteration.communication_s,
        "paceline/waiting_s": iteration.waiting_s,
    }
    found |= {f"paceline/share/{rank}": float(share) for rank, share in enumerate(iteration.shares)}
    return found | {f"paceline/{name}": value for name, value in iteration.logged.items()}


class TensorBoard:
    """Event files in a folder, which may be on a network."""

    def __init__(self, folder: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._folder, self._writer_in = folder, SummaryWriter

    def open(self) -> None:
        """Create the file."""
        self._writer = self._writer_in(self._folder)

    def send(self, points: Sequence[Point]) -> None:
        """Add scalars."""
        for iteration, at_s in points:
            for name, value in values(iteration).items():
                self._writer.add_scalar(name, value, iteration.number, walltime=at_s)

    def close(self) -> None:
        """Write what is buffered."""
        self._writer.close()


class MLflow:
    """A run of a tracking server or database. A request is repeated for minutes if the server does not answer."""

    def __init__(self, address: str) -> None:
        import mlflow

        self._address, self._mlflow = address, mlflow

    def open(self) -> None:
        """Create the run, and its experiment if there is none."""
        self._client: Any = self._mlflow.MlflowClient(tracking_uri=self._address)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "paceline")
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found is not None else self._client.create_experiment(name)
        run = self._client.create_run(experiment, run_name=f"job-{os.environ.get(JOB, 'alone')}")
        self._run = run.info.run_id

    def send(self, points: Sequence[Point]) -> None:
        """Log metrics, as many in one request as it accepts."""
        metric = self._mlflow.entities.Metric
        metrics = [
            metric(name, value, int(at_s * 1000), iteration.number)
            for iteration, at_s in points
            for name, value in values(iteration).items()
        ]
        for begin in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._run, metrics=metrics[begin : begin + MOST_METRICS])

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._run)


class WeightsAndBiases:
    """A run of a project, separate from runs of the script's own."""

    def __init__(self, project: str) -> None:
        import wandb

        self._project, self._wandb = project, wandb

    def open(self) -> None:
        """Create the run."""
        name = f"job-{os.environ.get(JOB, 'alone')}"
        self._run = self._wandb.init(project=self._project, name=name, reinit="create_new")

    def send(self, points: Sequence[Point]) -> None:
        """Add a step for each iteration."""
        for iteration, _ in points:
            self._run.log(values(iteration), step=iteration.number)

    def close(self) -> None:
        """Upload the rest, and mark the run as finished."""
        self._run.finish()


TRACKERS: Final[Mapping[str, Callable[[str], Tracker]]] = {
    TENSORBOARD: TensorBoard,
    MLFLOW: MLflow,
    WANDB: WeightsAndBiases,
}
"""Trackers by the variable that names the folder, the server or the project."""
