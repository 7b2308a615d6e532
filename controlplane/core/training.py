"""How every driver answers ``TrainPredictor``: the live one in a task of its own, the simulator on the spot."""

from controlplane.core.choices import Resolve, Trainable
from controlplane.core.commands import TrainPredictor
from controlplane.core.events import PredictorTrained


def fit(command: TrainPredictor, resolve: Resolve) -> PredictorTrained:
    """Do what the command asks for; the event is to be appended to the job's log.

    Takes up to seconds and loads torch. Doing it twice does no harm: the engine takes the answer to a round once.
    """
    predictor = resolve("prediction", command.predictor)
    if not isinstance(predictor, Trainable):
        raise TypeError(f"predictor {command.predictor.name} has nothing to fit")
    weights, error = predictor.fit(command.data, command.seed)
    return PredictorTrained(predictor=command.predictor.name, round=command.round, weights=weights, error=error)
