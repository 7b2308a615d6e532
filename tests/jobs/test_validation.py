"""Parameters of policies that are too large for the job: refused with the largest that has an effect, and the cure."""

from typing import Any

import pytest

from controlplane.jobs.validation import validated_spec
from controlplane.policies import registry
from controlplane.protocol.spec import SpecError, parse_spec
from tests.support.rows import SPEC


def document(workers: int = 4, **fields: Any) -> dict[str, Any]:
    return {**SPEC, "workers": workers, "batch_size": 16, "stop": {"iterations": 100}, **fields}


@pytest.mark.parametrize(
    ("synchronization", "field", "most", "cure"),
    [
        ({"barrier": {"name": "backup", "backups": 40}}, "barrier.backups", 3, "or barrier bsp"),
        ({"barrier": {"name": "backup", "backups": 4}}, "barrier.backups", 3, "for 4 workers"),
        ({"barrier": {"name": "pbsp", "sample": 400}}, "barrier.sample", 3, "to wait for all of them use bsp"),
        ({"barrier": {"name": "pssp", "sample": 400}}, "barrier.sample", 3, "to wait for all of them use ssp"),
        ({"barrier": {"name": "ssp", "staleness": 100}}, "barrier.staleness", 99, "use asp"),
        ({"barrier": {"name": "pssp", "staleness": 100}}, "barrier.staleness", 99, "use asp"),
        ({"batching": {"name": "lb-bsp-gpu", "step": 17}}, "batching.step", 16, "a worker's share of 16"),
        ({"batching": {"name": "lb-bsp-gpu", "fine_step": 17}}, "batching.fine_step", 16, "a worker's share of 16"),
        ({"batching": {"name": "deadline", "pieces": 17}}, "batching.pieces", 16, "a share of 16 samples"),
    ],
)
def test_a_parameter_beyond_the_jobs_size_is_refused(
    synchronization: dict[str, Any], field: str, most: int, cure: str
) -> None:
    with pytest.raises(SpecError) as refused:
        validated_spec(document(synchronization=synchronization))
    assert refused.value.field == f"synchronization.{field}"
    assert refused.value.expected.startswith(f"at most {most} ")
    assert cure in refused.value.expected
    [[_, choice]] = synchronization.items()
    validated_spec(document(synchronization={field.partition(".")[0]: {**choice, field.rpartition(".")[2]: most}}))


def test_the_policies_of_an_autopilot_are_checked_too() -> None:
    policy = {"mode": "auto", "barriers": ["bsp", {"name": "pbsp", "sample": 400}]}
    with pytest.raises(SpecError) as refused:
        validated_spec(document(autopilot=policy))
    assert (refused.value.field, refused.value.found) == ("autopilot.barriers[1].sample", 400)


@pytest.mark.parametrize("question", ["barrier", "batching"])
def test_defaults_are_accepted_at_every_size(question: str) -> None:
    """But for backup workers: of two, one must be waited for."""
    for name in registry.names(question):
        workers = 3 if name == "backup" else 2
        fields: dict[str, Any] = {"synchronization": {question: name}, "stop": {"iterations": 2}, "batch_size": 1}
        if name == "lb-bsp-federated":
            continue
        validated_spec(document(workers, **fields))
    with pytest.raises(SpecError, match="for 2 workers"):
        validated_spec(document(2, synchronization={"barrier": "backup"}))


def test_a_job_that_would_end_before_its_first_checkpoint_is_refused() -> None:
    stop = {"iterations": 50, "accuracy": 0.9}
    with pytest.raises(SpecError) as refused:
        validated_spec(document(checkpoint={"every": 51}, stop=stop))
    assert (refused.value.field, refused.value.found) == ("checkpoint.every", 51)
    assert refused.value.expected == "at most 50, or the job ends before it saves a checkpoint"
    assert parse_spec(document(checkpoint={"every": 51}, stop=stop)), "a job that was accepted earlier cannot be read"


@pytest.mark.parametrize("stop", [{"iterations": 50}, {"accuracy": 0.9}, {"seconds": 10.0}])
def test_a_job_that_may_reach_its_first_checkpoint_is_accepted(stop: dict[str, Any]) -> None:
    validated_spec(document(checkpoint={"every": 50}, stop=stop))
