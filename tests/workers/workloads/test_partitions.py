"""How samples are divided among workers that keep their own."""

from typing import Any

import numpy as np
import pytest

from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Division, Workload
from tests.workers.driver import job_spec
from workers.trainer.sampler import make_sampler
from workers.workloads.catalogue import load_workload
from workers.workloads.partitions import own_samples

DIGITS = Workload(name="softmax-regression")
SIGNS = Workload(name="softmax-regression", dataset="femnist-like", data={"samples": 400, "writers": 10})


def parts(spec: Workload, division: Division, workers: int = 5, seed: int = 3) -> list[Any]:
    workload = load_workload(spec)
    return [own_samples(workload, division, rank=rank, workers=workers, seed=seed) for rank in range(workers)]


@pytest.mark.parametrize("division", ["iid", "by-label", "two-shards", "by-writer"])
def test_every_sample_is_exactly_one_workers(division: Division) -> None:
    together = np.sort(np.concatenate(parts(SIGNS, division)))
    assert together.tolist() == list(range(load_workload(SIGNS).sample_count))


def test_by_label_a_worker_sees_few_classes_and_iid_all() -> None:
    labels = load_workload(DIGITS).labels()
    seen = {
        division: max(len(set(labels[own])) for own in parts(DIGITS, division))
        for division in ("iid", "by-label", "two-shards")
    }
    assert seen["iid"] == 10
    assert seen["by-label"] <= 4
    assert seen["two-shards"] <= 5


def test_a_writer_is_with_one_worker() -> None:
    workload = load_workload(SIGNS)
    writers = workload.writers()
    assert writers is not None
    owners = [set(writers[own]) for own in parts(SIGNS, "by-writer")]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 10


@pytest.mark.parametrize(
    ("spec", "division", "workers", "sentence"),
    [
        (DIGITS, "by-writer", 2, "iid, by-label or two-shards: the data name no writers"),
        (SIGNS, "by-writer", 11, "at most 10 with by-writer"),
        (DIGITS, "iid", 2000, "at most 1437"),
    ],
)
def test_what_cannot_be_divided_reports_why(spec: Workload, division: Division, workers: int, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        parts(spec, division, workers)


def test_a_worker_processes_all_its_own_samples_with_any_share() -> None:
    spec = job_spec(workers=3, workload=Workload(name="softmax-regression", partition="by-label"))
    workload = load_workload(spec.workload)
    own = own_samples(workload, "by-label", rank=1, workers=3, seed=spec.seed)
    sampler = make_sampler(workload, spec, 1)
    drawn = [sampler.samples(48 * iteration + 16, share) for iteration, share in enumerate((16, 40, len(own) - 56))]
    first = sampler.samples(999, 1)
    assert sorted(np.concatenate(drawn)[:-5].tolist()) != sorted(own[:-5].tolist())
    assert set(np.concatenate([*drawn, first])) <= set(own)
    assert len(set(np.concatenate(drawn))) >= len(own) - 6  # it began at its sixth position
