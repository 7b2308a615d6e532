"""A user's own workload runs where the machine's owner allows it, and nowhere else."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from controlplane.protocol.catalogue import check_workload
from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Optimizer, Workload
from workers.workloads.catalogue import load_workload
from workers.workloads.local import Local
from workers.workloads.rules import GradientRule
from workers.workloads.shape import Score, Update
from workers.workloads.traffic import Traffic

HERE = "tests.workers.workloads.test_foreign"
ALLOWED = Local(allow_code=True)


def tiny(*, size: int = 3) -> Traffic:
    return Traffic({"only": size}, scale=1.0, samples=10)


def placed(*, device: str = "nowhere") -> Traffic:
    return Traffic({device: 1}, scale=1.0, samples=10)


def text() -> str:
    return "no workload"


def leave() -> None:
    raise ZeroDivisionError("of mine")


class Own:
    """A user's own workload, sound but for what ``change`` does to it."""

    sample_count: Any = 5

    def __init__(self, change: str) -> None:
        self.shapes: Any = {"a": (2,), "b": (1, 2)}
        BREAK[change](self)

    def init(self, seed: int) -> Any:
        return np.zeros(4, dtype=np.float32)

    def replica(self) -> "OwnReplica":
        return OwnReplica()

    def rule(self, values: Any, optimizer: Any) -> GradientRule:
        return GradientRule(values, optimizer)

    def labels(self) -> Any:
        return np.zeros(5, dtype=np.int64)

    def writers(self) -> None:
        return None


class OwnReplica:
    def __init__(self) -> None:
        self.parameters: Any = np.zeros(4, dtype=np.float32)
        self.gradient: Any = np.zeros(4, dtype=np.float32)
        self.given: Any = None
        self.score: Any = Score(loss=1.0, accuracy=None, samples=1)

    def update(self, samples: Any) -> Any:
        self.gradient = np.full_like(self.gradient, len(samples))
        return self.given or Update(loss_sum=1.0, samples=len(samples))

    def evaluate(self) -> Any:
        return self.score


def replica_with(**attributes: Any) -> Callable[[Own], None]:
    """What has replicas be made with these attributes."""

    def change(own: Own) -> None:
        made = OwnReplica()
        for name, value in attributes.items():
            setattr(made, name, value)
        own.replica = lambda: made  # type: ignore[method-assign]

    return change


def having(**attributes: Any) -> Callable[[Own], None]:
    def change(own: Own) -> None:
        for name, value in attributes.items():
            setattr(own, name, value)

    return change


BREAK: dict[str, Callable[[Own], None]] = {
    "nothing": having(),
    "no samples": having(sample_count=0),
    "no shapes": having(shapes={}),
    "shapes of nothing": having(shapes={"a": (0,)}),
    "shapes in a list": having(shapes=[3]),
    "init of another type": having(init=lambda seed: np.zeros(4)),
    "init of another size": having(init=lambda seed: np.zeros(3, dtype=np.float32)),
    "init of no numbers": having(init=lambda seed: np.full(4, np.nan, dtype=np.float32)),
    "labels of another number": having(labels=lambda: np.zeros(3)),
    "a list of parameters": replica_with(parameters=[0.0] * 4),
    "a matrix of gradients": replica_with(gradient=np.zeros((2, 2), dtype=np.float32)),
    "no update": replica_with(given=(1.0, 2)),
    "an update of others": replica_with(given=Update(loss_sum=1.0, samples=99)),
    "no score": replica_with(score=0.5),
    "accuracy in per cent": replica_with(score=Score(loss=1.0, accuracy=97.0, samples=1)),
}


def own(*, change: str) -> Own:
    return Own(change)


def run(change: str) -> Any:
    """Everything that a job asks of a workload, once."""
    workload = load_workload(Workload(name=f"{HERE}:own", options={"change": change}), ALLOWED)
    assert workload.sample_count == 5
    replica = workload.replica()
    replica.parameters[:] = workload.init(1)
    gradient = replica.gradient
    workload.labels()
    replica.update(np.arange(3))
    replica.evaluate()
    return gradient.tolist()


def test_it_is_made_by_its_factory_with_its_options() -> None:
    spec = Workload(name=f"{HERE}:tiny", options={"size": 5})
    check_workload(spec)
    assert load_workload(spec, ALLOWED).layout.shapes == {"only": (5,)}


class Asking(Own):
    """Its rule asks where its block begins."""

    def rule(self, values: Any, optimizer: Any, *, start: int) -> Any:
        return start


def asking(*, change: str = "nothing") -> Own:
    return Asking(change)


def test_a_rule_receives_the_offset_of_a_block_if_it_asks() -> None:
    rules = [
        load_workload(Workload(name=f"{HERE}:{name}", options={"change": "nothing"}), ALLOWED).rule
        for name in ("asking", "own")
    ]
    assert rules[0](torch.zeros(1), Optimizer(), start=3) == 3
    assert isinstance(rules[1](torch.zeros(1), Optimizer(), start=3), GradientRule)


@pytest.mark.parametrize(("options", "device"), [({}, "cuda:1"), ({"device": "cpu"}, "cpu")])
def test_a_factory_with_a_device_parameter_receives_the_machines_unless_the_job_names_one(
    options: dict[str, str], device: str
) -> None:
    spec = Workload(name=f"{HERE}:placed", options=options)
    assert load_workload(spec, Local(allow_code=True, device="cuda:1")).layout.shapes == {device: (1,)}


def test_it_is_refused_unless_the_agent_allows_code() -> None:
    with pytest.raises(SpecError, match=r"this machine runs no code of jobs .*--allow-code"):
        load_workload(Workload(name=f"{HERE}:tiny"))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no.such.module:make", "a module that can be imported here"),
        (f"{HERE}:absent", "a callable 'absent' in module"),
        (f"{HERE}:text", "found 'a str without shapes, init, replica, rule, labels, writers'"),
        (f"{HERE}:leave", r"a factory that takes workload\.options \(ZeroDivisionError: of mine\)"),
        (f"{HERE}:tiny.x", "a callable 'tiny.x' in module"),
    ],
)
def test_what_is_no_workload_reports_what_is_missing(name: str, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        load_workload(Workload(name=name), ALLOWED)


def test_options_that_its_factory_does_not_take_are_named() -> None:
    with pytest.raises(SpecError, match=r"takes workload\.options \(TypeError: tiny\(\) got an unexpected keyword"):
        load_workload(Workload(name=f"{HERE}:tiny", options={"sice": 5}), ALLOWED)


@pytest.mark.parametrize("text", ["def make(:", "raise RuntimeError('mine')", "raise SystemExit('away')"])
def test_a_module_that_fails_to_be_imported_reports_how(tmp_path: Any, monkeypatch: Any, text: str) -> None:
    (tmp_path / "own_and_broken.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        SpecError, match=r"a module that can be imported here \((SyntaxError|RuntimeError|SystemExit): "
    ):
        load_workload(Workload(name="own_and_broken:make"), ALLOWED)


def test_a_sound_one_is_used_as_it_is_even_where_it_makes_a_new_gradient_each_time() -> None:
    assert run("nothing") == [3.0] * 4


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("no samples", "sample_count: found 0, expected a number of at least 1"),
        ("no shapes", r"shapes: found \{\}, expected at least one name"),
        ("shapes of nothing", r"shapes: found \{'a': \(0,\)\}, expected at least one name"),
        ("shapes in a list", r"shapes: found \[3\], expected at least one name"),
        ("init of another type", "what init gives: found 'a float64 array of 4', expected a flat float32 array of 4"),
        ("init of another size", "what init gives: found 'a float32 array of 3', expected a flat float32 array of 4"),
        ("init of no numbers", "what init gives: found 'values that are not numbers', expected finite ones"),
        ("labels of another number", r"labels\(\): found 'an array of 3', expected one for each of 5 samples"),
        ("a list of parameters", r"replica\(\)\.parameters: found 'list', expected a flat float32 array of 4"),
        ("a matrix of gradients", r"replica\(\)\.gradient: found 'a float32 array of 2 x 2', expected a flat"),
        ("no update", "what update gives: found 'tuple', expected an Update"),
        ("an update of others", "what update gives: found '99 samples', expected 3, as many as it was given"),
        ("accuracy in per cent", r"what evaluate gives: found Score\(.*\), expected at least one sample, and no acc"),
        ("no score", "what evaluate gives: found 'float', expected a Score"),
    ],
)
def test_one_that_breaks_its_promise_is_named_with_what_it_gave(change: str, sentence: str) -> None:
    with pytest.raises(SpecError, match=f"workload {HERE}:own: {sentence}"):
        run(change)
