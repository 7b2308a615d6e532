"""The workload of the documentation trains as it stands there."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import torch

from controlplane.protocol.training import Optimizer

DOCUMENT = Path(__file__).parents[3] / "docs" / "workloads.md"


def test_the_example_of_a_users_own_workload_learns_its_mean() -> None:
    code = DOCUMENT.read_text().partition("One that learns a mean:\n")[2].partition("\n## ")[0]
    names: dict[str, Any] = {}
    exec(dedent(code), names)
    workload = names["Mean"]()
    replica = workload.replica()
    rule = workload.rule(torch.from_numpy(replica.parameters), Optimizer(lr=0.5))
    for _ in range(20):
        update = replica.update(np.arange(workload.sample_count))
        rule.apply(torch.from_numpy(replica.gradient), update.samples)
    assert abs(replica.parameters[0] - 3.0) < 0.1
