"""Workloads from a user's code: ``package.module:factory``, on machines whose owner allows it.

Results of such code are checked immediately: otherwise a wrong size or type would be detected elsewhere, or never.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Optimizer
from controlplane.protocol.training import Workload as WorkloadSpec
from workers.workloads.layout import Layout
from workers.workloads.local import Local
from workers.workloads.memory import ceiling_of
from workers.workloads.shape import (
    OnFinal,
    Prefetching,
    Replica,
    ReportsProgress,
    Rule,
    Samples,
    Saving,
    Score,
    Scorer,
    Update,
    Vector,
    Workload,
    loading_s_of,
    scorer_of,
)
from workers.workloads.tensors import ResidentReplica

MEMBERS = ("init", "replica", "rule", "labels", "writers")


def load_foreign(spec: WorkloadSpec, local: Local) -> Workload:
    """Create the result of ``factory(**options)``; it is the job's code, so the machine's owner must have allowed it.

    A factory with a ``device`` parameter receives the machine's, unless the options name one.

    Raises:
        SpecError: if that is not allowed, or there is no such factory, or its result is not a workload.
    """
    if not local.allow_code:
        expected = "a name of the catalogue: this machine runs no code of jobs (its agent was not given --allow-code)"
        raise SpecError("workload.name", spec.name, expected)
    factory = _factory(spec)
    try:
        workload = factory(**_known_of(factory, spec, local), **spec.options)
    except SpecError:
        raise
    except Exception as error:
        expected = f"a factory that takes workload.options ({type(error).__name__}: {error})"
        raise SpecError("workload.name", spec.name, expected) from error
    missing = [name for name in MEMBERS if not hasattr(workload, name)]
    if not hasattr(workload, "shapes") and not hasattr(workload, "layout"):
        missing.insert(0, "shapes")
    if missing:
        made = f"a {type(workload).__name__} without {', '.join(missing)}"
        raise SpecError("workload.name", made, "a workload: workers/workloads/shape.py says what it must have")
    if spec.init is not None:
        if not hasattr(workload, "begins_with"):
            expected = f"none: a {type(workload).__name__} has its own init"
            raise SpecError("workload.init", spec.init, expected)
        workload.begins_with = spec.init
    if spec.precision != "fp32":
        if not hasattr(workload, "precision"):
            expected = f"fp32: a {type(workload).__name__} computes as its own code says"
            raise SpecError("workload.precision", spec.precision, expected)
        workload.precision = spec.precision
    return Foreign(spec.name, workload)


def _known_of(factory: Callable[..., Any], spec: WorkloadSpec, local: Local) -> dict[str, Any]:
    """Options added by the machine."""
    takes_device = "device" in inspect.signature(factory).parameters and "device" not in spec.options
    return {"device": local.device} if takes_device else {}


def _factory(spec: WorkloadSpec) -> Any:
    module, _, name = spec.name.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name, None)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise SpecError("workload.name", spec.name, f"a module that can be imported here ({reason})") from error
    if not callable(factory):
        raise SpecError("workload.name", spec.name, f"a callable {name!r} in module {module}")
    return factory


class Foreign:
    """``Workload`` around a user's own; raises ``SpecError`` with the problem if it violates the interface."""

    def __init__(self, name: str, workload: Any) -> None:
        self._name, self._workload = name, workload
        self.layout = self._layout()
        self._elements = self.layout.size
        self._takes_start = _takes_start(workload.rule)

    @property
    def sample_count(self) -> int:
        """Samples of the training split."""
        count = self._workload.sample_count
        if not isinstance(count, int | np.integer) or count < 1:
            raise self._error("sample_count", count, "a number of at least 1")
        return int(count)

    def init(self, seed: int) -> Vector:
        """Version 0 of the parameters."""
        vector = self._vector("what init gives", self._workload.init(seed))
        if not np.isfinite(vector).all():
            raise self._error("what init gives", "values that are not numbers", "finite ones")
        return vector

    def replica(self) -> Replica:
        """A replica whose updates are checked."""
        replica = self._workload.replica()
        for name in ("parameters", "gradient"):
            self._vector(f"replica().{name}", getattr(replica, name, None))
        return ProgressReplica(self, replica) if isinstance(replica, ReportsProgress) else ForeignReplica(self, replica)

    def scorer(self) -> Scorer:
        """A scorer whose scores are checked."""
        scorer = scorer_of(self._workload)
        self._vector("scorer().parameters", getattr(scorer, "parameters", None))
        return ForeignScorer(self, scorer)

    def saved(self, parameters: Vector) -> Mapping[str, np.ndarray]:
        """As the user's workload saves it."""
        return self._workload.saved(parameters) if isinstance(self._workload, Saving) else self.layout.views(parameters)

    def rule(self, values: torch.Tensor, optimizer: Optimizer, *, start: int = 0) -> Rule:
        """The user's rule, with the start of its block if it accepts one."""
        where = {"start": start} if self._takes_start else {}
        rule: Rule = self._workload.rule(values, optimizer, **where)
        return rule

    def labels(self) -> Samples:
        """A class for each sample."""
        labels = np.asarray(self._workload.labels())
        if labels.shape != (self.sample_count,):
            raise self._error(
                "labels()", f"an array of {_size(labels)}", f"one for each of {self.sample_count} samples"
            )
        return labels

    def writers(self) -> Samples | None:
        """The author of each sample, if the user's workload has it."""
        writers: Samples | None = self._workload.writers()
        return writers

    def check_update(self, replica: Any, parameters: Vector, update: Any, samples: int) -> None:
        """Raise ``SpecError`` unless ``update`` is over ``samples``, and the vectors are valid."""
        if not isinstance(update, Update):
            raise self._error("what update gives", type(update).__name__, "an Update")
        if update.samples != samples:
            raise self._error("what update gives", f"{update.samples} samples", f"{samples}, as many as it was given")
        if replica.parameters is not parameters:
            raise self._error("update", "another array as parameters", "the same one: it is written to from outside")
        self._vector("gradient", replica.gradient)

    def check_tensor(self, what: str, found: object) -> None:
        """Raise ``SpecError`` unless ``found`` is a flat tensor of all parameters."""
        if not isinstance(found, torch.Tensor) or found.dtype != torch.float32 or found.shape != (self._elements,):
            kind = f"a {found.dtype} tensor" if isinstance(found, torch.Tensor) else type(found).__name__
            raise self._error(what, kind, f"a flat float32 tensor of {self._elements}, as shapes say")

    def check_score(self, score: Any) -> None:
        """Raise ``SpecError`` unless ``score`` is a ``Score``."""
        if not isinstance(score, Score):
            raise self._error("what evaluate gives", type(score).__name__, "a Score")
        if score.samples < 1 or not (score.accuracy is None or 0.0 <= score.accuracy <= 1.0):
            raise self._error("what evaluate gives", score, "at least one sample, and no accuracy or one from 0 to 1")

    def _layout(self) -> Layout:
        """The workload's own layout, or one from its shapes."""
        layout = getattr(self._workload, "layout", None)
        if layout is None:
            return Layout.of(self._shapes(self._workload.shapes))
        if not isinstance(layout, Layout) or not layout.shapes:
            raise self._error("layout", layout, "a workers.workloads.layout.Layout with at least one parameter")
        return layout

    def _shapes(self, shapes: Any) -> Mapping[str, tuple[int, ...]]:
        expected = "at least one name, each with a tuple of extents of at least 1"
        if not isinstance(shapes, Mapping) or not shapes:
            raise self._error("shapes", shapes, expected)
        for shape in shapes.values():
            if not isinstance(shape, tuple | list) or not all(isinstance(n, int) and n >= 1 for n in shape):
                raise self._error("shapes", dict(shapes), expected)
        return {str(name): tuple(shape) for name, shape in shapes.items()}

    def _vector(self, what: str, found: Any) -> Vector:
        """``found``, if it is a flat vector of all parameters."""
        expected = f"a flat float32 array of {self._elements}, as shapes say"
        if not isinstance(found, np.ndarray):
            raise self._error(what, type(found).__name__, expected)
        if found.dtype != np.float32 or found.shape != (self._elements,) or not found.flags.c_contiguous:
            raise self._error(what, f"a {found.dtype} array of {_size(found)}", expected)
        return found

    def _error(self, what: str, found: object, expected: str) -> SpecError:
        return SpecError(f"workload {self._name}: {what}", found, expected)


class ForeignScorer:
    """``Scorer`` around a user's own."""

    def __init__(self, workload: Foreign, scorer: Any) -> None:
        self._workload, self._scorer = workload, scorer
        self.parameters: Vector = scorer.parameters

    def evaluate(self) -> Score:
        """The user's score, checked."""
        score = self._scorer.evaluate()
        self._workload.check_score(score)
        return score  # type: ignore[no-any-return]


class ForeignReplica:
    """``Replica`` around a user's own; it receives batches to prefetch only if it has ``prefetch``."""

    def __init__(self, workload: Foreign, replica: Any) -> None:
        self._workload, self._replica = workload, replica
        self.parameters: Vector = replica.parameters
        self.gradient: Vector = replica.gradient
        self._tensors: tuple[torch.Tensor, torch.Tensor] | None = None

    def reside(self) -> None:
        """Keep its vectors on its device, if it supports that."""
        if not isinstance(self._replica, ResidentReplica):
            return
        self._replica.reside()
        found = self._replica.values, self._replica.sums
        for what, tensor in zip(("values", "sums"), found, strict=True):
            self._workload.check_tensor(f"replica().{what}", tensor)
        self._tensors = found

    @property
    def values(self) -> torch.Tensor:
        """Its parameters, on its device if it keeps them there."""
        return torch.from_numpy(self.parameters) if self._tensors is None else self._tensors[0]

    @property
    def sums(self) -> torch.Tensor:
        """Its gradient sums, on its device if it keeps them there."""
        return torch.from_numpy(self.gradient) if self._tensors is None else self._tensors[1]

    @property
    def ceiling(self) -> int | None:
        """The largest number of samples that fits into its memory, if it reports one."""
        return ceiling_of(self._replica)

    @property
    def loading_s(self) -> float | None:
        """How long its updates have waited for samples, if it reports that."""
        return loading_s_of(self._replica)

    def update(self, samples: Samples) -> Update:
        """The user's update, checked."""
        update = self._replica.update(samples)
        self._workload.check_update(self._replica, self.parameters, update, len(samples))
        if self._replica.gradient is not self.gradient:
            np.copyto(self.gradient, self._replica.gradient)
        return update  # type: ignore[no-any-return]

    def prefetch(self, batches: Sequence[Samples]) -> None:
        """The user's ``prefetch``, if there is one."""
        if isinstance(self._replica, Prefetching):
            self._replica.prefetch(batches)

    def evaluate(self) -> Score:
        """The user's score, checked."""
        score = self._replica.evaluate()
        self._workload.check_score(score)
        return score  # type: ignore[no-any-return]


class ProgressReplica(ForeignReplica):
    """A replica that reports final gradients while it computes."""

    def report_progress(self, on_final: OnFinal) -> None:
        """The user's ``report_progress``."""
        self._replica.report_progress(on_final)


def _takes_start(rule: Callable[..., Any]) -> bool:
    """Whether it accepts the start of its block in the flat vector."""
    parameters = inspect.signature(rule).parameters
    return "start" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _size(array: np.ndarray) -> str:
    return " x ".join(map(str, array.shape)) or "no dimensions"
