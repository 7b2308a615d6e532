"""Which addresses of a cluster are refused before Ray is asked; by the interpreter that has Ray, without a cluster."""

import os
import subprocess

import pytest

from tests.architecture.sources import ROOT
from tests.support.on_ray import INSTALL, PYTHON, is_installed

EXPECTED = "expected HOST:PORT of a Ray cluster's head, ray://HOST:10001, or auto"


@pytest.mark.integration
@pytest.mark.skipif(not is_installed(), reason=INSTALL)
@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (
            (),
            {"RAY_ADDRESS": "http://head:8265"},
            f"RAY_ADDRESS 'http://head:8265': found the address at which Ray accepts jobs, {EXPECTED}; give one of "
            "these with --address, and submit jobs with `ray job submit --address http://head:8265`\n",
        ),
        (
            ("--address", "https://head"),
            {"RAY_ADDRESS": "127.0.0.1:6379"},
            f"--address 'https://head': found the address at which Ray accepts jobs, {EXPECTED}; give one of "
            "these with --address, and submit jobs with `ray job submit --address https://head`\n",
        ),
        ((), {"RAY_ADDRESS": "head"}, f"RAY_ADDRESS 'head': {EXPECTED}\n"),
    ],
)
@pytest.mark.parametrize("part", ["up", "status"])
def test_an_address_that_is_not_of_a_cluster_is_refused_with_the_cure(
    part: str, arguments: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    command = [str(PYTHON), "-m", "paceline", "ray", part, *arguments]
    known = {**os.environ, **variables}
    done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
