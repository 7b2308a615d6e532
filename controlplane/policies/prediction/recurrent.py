"""The recurrent predictors, which differ in their network: their history, when they request a fit, and how they
predict.

Until there are weights, the prediction is each worker's EMA (LB-BSP section 4: the first 500 iterations). It remains
the EMA if the worker's model does not beat it on held-out samples (docs/decisions/0054). A fit is requested as a
lesson, and its result comes as an event; this module does not train.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from controlplane.core.choices import Lesson
from controlplane.core.events import PredictorTrained
from controlplane.policies.catalogue.prediction import EmaParameters, RecurrentParameters
from controlplane.policies.prediction.ema import Ema, EmaState
from controlplane.policies.prediction.interface import Measured
from controlplane.policies.prediction.networks import LSTM, NARX, RNN, SPREAD, Network, relative
from controlplane.policies.prediction.sheet import Array, Sheet, columns, fill, predictions
from controlplane.policies.prediction.weights import LessonData, encode, read_weights, weights_decoder
from controlplane.policies.wording import number
from controlplane.protocol.base import Value
from controlplane.protocol.spec import Choice

KEPT_MODELS = 128
"""Number of jobs whose decoded weights are cached: about 1 MB each with a thousand workers."""

LOST = 4
"""A lesson without a result for this multiple of the interval between lessons counts as lost."""

MOST_UNANSWERED = 5

FURTHEST = 4.0
"""Forecasts are limited to this factor from the worker's average: a network may extrapolate to anything."""


class RecurrentState(Value, frozen=True, kw_only=True):
    """The network's inputs and weights, and the data for requesting better ones."""

    averages: EmaState = EmaState()
    sheet: Sheet = Sheet()
    """For each rank: the number of observations, their mean speed, and the last ones, newest first."""
    columns: list[int] = []
    """The ranks of the columns of ``history``."""
    history: tuple[bytes, ...] = ()
    """One row per iteration, oldest first: 32-bit speed, CPU and memory of each column; NaN if not measured."""
    unseen: int = 0
    """Iterations since the last lesson was requested."""
    asked: int = 0
    """The last round that was requested."""
    answered: int = 0
    weights: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """One network for all workers of a job, with weights for each."""

    name: ClassVar[str]
    network: ClassVar[Network]
    state_type: ClassVar[type[msgspec.Struct]] = RecurrentState

    parameters: RecurrentParameters

    def start(self) -> RecurrentState:
        """A state without workers."""
        return RecurrentState()

    def observe(self, measured: Mapping[int, Measured], state: RecurrentState) -> RecurrentState:
        """Add one iteration to the windows and the history."""
        if not measured:
            return state
        ranks, rows = state.sheet.with_ranks(measured, np.zeros(self._width))
        complete = len(measured) == len(ranks)
        at, seen = columns(measured, ranks)
        part = rows if complete else rows[at]
        part[:, 0] += 1
        part[:, 1] += (seen[:, 0] - part[:, 1]) / part[:, 0]
        part[:, 5:] = part[:, 2:-3].copy()
        part[:, 2:5] = seen
        if complete:
            line = seen.astype(np.float32)
        else:
            rows[at] = part
            line = np.full((len(ranks), 3), np.nan, dtype=np.float32)
            line[at] = seen
        history = state.history if ranks == state.columns else _relaid(state, ranks)
        return msgspec.structs.replace(
            state,
            averages=self._ema.observe(measured, state.averages),
            sheet=fill(ranks, rows),
            columns=ranks,
            history=(*history[max(0, len(history) - self.parameters.samples + 1) :], line.tobytes()),
            unseen=state.unseen + 1,
        )

    def predict(self, state: RecurrentState) -> dict[int, float]:
        """The network's forecast if it is better than the EMA and its window is full; otherwise the EMA."""
        averages = state.averages.speeds
        if not state.weights or not state.sheet.ranks:
            return dict(averages)
        rows = state.sheet.rows(self._width)
        models = _models(state.weights, self.network, self.parameters, tuple(state.sheet.ranks))
        usual = np.where(models.own, models.usual, rows[:, 1])
        window = rows[:, 2:].reshape(len(rows), -1, 3)
        inputs = self.network.inputs(np, relative(window, usual), self.parameters.look_back)
        ahead = (1.0 + SPREAD * self.network.forward(np, models.tensors, inputs[:, None, :])[:, 0]) * usual
        average = np.array([averages[rank] for rank in state.sheet.ranks])
        ahead = np.clip(ahead, average / FURTHEST, average * FURTHEST)
        has_history = models.better & (rows[:, 0] >= window.shape[1])
        return predictions(state.sheet.ranks, np.where(has_history, ahead, average))

    def carry(self, before: "Recurrent", state: RecurrentState) -> RecurrentState:
        """Averages and history, and the weights if the network has the same shape; otherwise it is retrained."""
        old, new = before.parameters, self.parameters
        if (old.look_back, old.hidden) == (new.look_back, new.hidden):
            return state
        # Results of earlier requests are weights of the other shape.
        fresh = msgspec.structs.replace(
            state, weights=b"", answered=state.asked, unseen=max(state.unseen, len(state.history))
        )
        return fresh if old.look_back == new.look_back else msgspec.structs.replace(fresh, sheet=self._sheet_of(state))

    def keep(self, ranks: Collection[int], state: RecurrentState) -> RecurrentState:
        """Windows and history of ``ranks``; the weights stay for the ranks that they fit."""
        kept = [rank for rank in state.columns if rank in ranks]
        return msgspec.structs.replace(
            state,
            averages=self._ema.keep(ranks, state.averages),
            sheet=state.sheet.kept(ranks, self._width),
            columns=kept,
            history=_relaid(state, kept),
        )

    def request_lesson(self, state: RecurrentState) -> tuple[RecurrentState, Lesson | None]:
        """A lesson, if there were enough iterations since the last one; the first after ``samples`` iterations.

        None while a fit is running, so that fits never pile up. A lesson that counts as lost is requested again, with
        increasing intervals.
        """
        due = self.parameters.retrain_every if state.asked and state.weights else self.parameters.samples
        unanswered = min(state.asked - state.answered, MOST_UNANSWERED)
        if not due or state.unseen < due * LOST**unanswered or (unanswered and not self.parameters.retrain_every):
            return state, None
        updated = msgspec.structs.replace(state, unseen=0, asked=state.asked + 1)
        data = LessonData(ranks=state.columns, history=b"".join(state.history), initial=state.weights)
        reason = f"{self.name} can be fitted to {len(state.history)} iterations of {len(state.columns)} workers"
        choice = Choice(name=self.name, parameters=msgspec.to_builtins(self.parameters))
        return updated, Lesson(predictor=choice, round=updated.asked, data=encode(data), reason=reason)

    def learn(self, state: RecurrentState, outcome: PredictorTrained) -> tuple[RecurrentState, str]:
        """Predict with these weights from now on.

        Raises:
            ValueError: if they do not fit, were not requested, or come after those of a later round.
        """
        if outcome.round and not state.answered < outcome.round <= state.asked:
            found = f"{self.name}: found weights of round {outcome.round}"
            raise ValueError(f"{found}, expected one after {state.answered} and up to {state.asked}")
        read = read_weights(outcome.weights, self.network, self.parameters)
        learnt = msgspec.structs.replace(state, weights=outcome.weights, answered=max(state.answered, outcome.round))
        whose = f" by {outcome.source}" if outcome.source else ""
        error = f", error {number(outcome.error)} samples/s on held-out samples" if outcome.error is not None else ""
        models = f"models of {len(read.ranks)} workers and a common one"
        averaged = len(read.ranks) - sum(read.better[1:]) if read.better else 0
        kept = f"; {averaged} of {len(read.ranks)} stay with their average, which is no worse" if averaged else ""
        return learnt, f"{self.name} was trained{whose}, {models}{error}{kept}"

    def fit(self, data: bytes, seed: int) -> tuple[bytes, float]:
        """Weights from a lesson's data; imports torch."""
        from controlplane.policies.prediction import fitting

        return fitting.fit(self.network, self.parameters, data, seed)

    def _sheet_of(self, state: RecurrentState) -> Sheet:
        """Rebuild the windows from the history."""
        rows = np.zeros((len(state.columns), self._width))
        size = (len(state.history), len(state.columns), 3)
        seen = np.frombuffer(b"".join(state.history), dtype=np.float32).reshape(size)
        for rank, row, series in zip(state.columns, rows, seen.transpose(1, 0, 2).astype(np.float64), strict=True):
            measured = series[np.isfinite(series[:, 0])]
            window = measured[::-1][: self.network.rows(self.parameters.look_back)].ravel()
            row[0], row[2 : 2 + len(window)] = len(measured), window
            row[1] = measured[:, 0].mean() if len(measured) else state.averages.speeds[rank]
        return fill(state.columns, rows)

    @property
    def _ema(self) -> Ema:
        return _ema(self.parameters.alpha)

    @property
    def _width(self) -> int:
        return 2 + 3 * self.network.rows(self.parameters.look_back)


@cache
def _ema(alpha: float) -> Ema:
    return Ema(parameters=EmaParameters(alpha=alpha))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Models:
    """For each rank: its weights, its own or the common ones, and its usual speed."""

    tensors: Mapping[str, Array]
    own: NDArray[np.bool_]
    better: NDArray[np.bool_]
    """Whether the model is better than the rank's average."""
    usual: Array


@lru_cache(maxsize=KEPT_MODELS)
def _models(data: bytes, network: Network, parameters: RecurrentParameters, ranks: tuple[int, ...]) -> _Models:
    """Decode the weights of some ranks; cached, since they stay the same for hundreds of iterations."""
    weights = weights_decoder.decode(data)
    arrays = weights.arrays(network.shapes(parameters.look_back, parameters.hidden))
    place = {rank: i for i, rank in enumerate(weights.ranks)}
    model = np.array([place.get(rank, -1) + 1 for rank in ranks], dtype=np.intp)
    return _Models(
        tensors={name: tensor[model] for name, tensor in arrays.items()},
        own=model > 0,
        better=np.array(weights.better or [True] * (len(weights.ranks) + 1))[model],
        usual=np.array([0.0, *weights.usual])[model],
    )


def _relaid(state: RecurrentState, ranks: list[int]) -> tuple[bytes, ...]:
    """The history with other columns."""
    if ranks == state.columns:
        return state.history
    old = np.frombuffer(b"".join(state.history), dtype=np.float32).reshape(len(state.history), len(state.columns), 3)
    new = np.full((len(old), len(ranks), 3), np.nan, dtype=np.float32)
    place = {rank: i for i, rank in enumerate(state.columns)}
    for i, rank in enumerate(ranks):
        if rank in place:
            new[:, i] = old[:, place[rank]]
    return tuple(line.tobytes() for line in new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rnn(Recurrent):
    """Plain recurrent network over the last speeds; ignores CPU and memory (LB-BSP section 3.2.2, Table 3)."""

    name: ClassVar[str] = "rnn"
    network: ClassVar[Network] = RNN


@dataclass(frozen=True, slots=True, kw_only=True)
class Lstm(Recurrent):
    """Long short-term memory over the last speeds; ignores CPU and memory (LB-BSP section 3.2.2, Table 3)."""

    name: ClassVar[str] = "lstm"
    network: ClassVar[Network] = LSTM


@dataclass(frozen=True, slots=True, kw_only=True)
class Narx(Recurrent):
    """Nonlinear autoregressive model with exogenous series: speed, CPU and memory (LB-BSP section 3.2.2, Eq. 4).

    Feedforward, one hidden layer, over the last speeds and the last and coming CPU and memory. It can distinguish a
    lasting change that CPU or memory explains from an unexplained disturbance.
    """

    name: ClassVar[str] = "narx"
    network: ClassVar[Network] = NARX
