"""A user's own workload runs where the machine's owner allows it, and nowhere else."""

import pytest

from controlplane.protocol.catalogue import check_workload
from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Workload
from workers.workloads.catalogue import load_workload
from workers.workloads.local import Local
from workers.workloads.traffic import Traffic

HERE = "tests.workers.workloads.test_foreign"
ALLOWED = Local(allow_code=True)


def tiny(*, size: int = 3) -> Traffic:
    return Traffic({"only": size}, scale=1.0, samples=10)


def text() -> str:
    return "no workload"


def test_it_is_made_by_its_factory_with_its_options() -> None:
    spec = Workload(name=f"{HERE}:tiny", options={"size": 5})
    check_workload(spec)
    assert load_workload(spec, ALLOWED).shapes == {"only": (5,)}


def test_it_is_refused_unless_the_agent_was_told_to_allow_it() -> None:
    with pytest.raises(SpecError, match=r"this machine runs no code of jobs .*--allow-code"):
        load_workload(Workload(name=f"{HERE}:tiny"))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no.such.module:make", "a module that can be imported here"),
        (f"{HERE}:absent", "a callable 'absent' in module"),
        (f"{HERE}:text", "found 'a str without shapes, init, replica, rule, labels, writers'"),
    ],
)
def test_what_is_no_workload_says_what_is_missing(name: str, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        load_workload(Workload(name=name), ALLOWED)
