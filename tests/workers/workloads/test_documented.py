"""The workloads of the documentation train as they stand there."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import torch

from controlplane.protocol.training import Optimizer
from workers.workloads.shape import Replica, Workload, named_arrays

DOCUMENT = Path(__file__).parents[3] / "docs" / "workloads.md"


def example(title: str, end: str) -> dict[str, Any]:
    """What the code below that sentence defines."""
    code = DOCUMENT.read_text().partition(f"{title}\n")[2].partition(end)[0]
    names: dict[str, Any] = {}
    exec(dedent(code), names)
    return names


def descend(workload: Workload, replica: Replica, *, steps: int, lr: float) -> None:
    """Steps along the gradient of all samples."""
    rule = workload.rule(torch.from_numpy(replica.parameters), Optimizer(lr=lr))
    for _ in range(steps):
        update = replica.update(np.arange(workload.sample_count))
        rule.apply(torch.from_numpy(replica.gradient), update.samples)


def test_the_example_of_a_users_own_workload_learns_its_mean() -> None:
    workload = example("This one learns a mean:", "\n## ")["Mean"]()
    replica = workload.replica()
    descend(workload, replica, steps=20, lr=0.5)
    assert abs(replica.parameters[0] - 3.0) < 0.1


def test_the_example_of_a_users_own_module_learns_classes_from_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    classes = np.arange(500) % 5
    rows = np.eye(20, dtype=np.float32)[classes] * 3 + rng.normal(size=(500, 20)).astype(np.float32)
    parts = {"x": rows[:400], "y": classes[:400], "held_x": rows[400:], "held_y": classes[400:]}
    np.savez(tmp_path / "mine.npz", **parts)
    workload = example("A PyTorch module with your own data:", "    workload:")["classifier"](tmp_path / "mine.npz")
    replica = workload.replica()
    replica.parameters[:] = workload.init(1)
    descend(workload, replica, steps=50, lr=0.5)
    score = replica.evaluate()
    assert score.accuracy > 0.8
    module = workload.build()
    arrays = named_arrays(workload, replica.parameters)
    module.load_state_dict({name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()})
    with torch.no_grad():
        found = module.eval()(torch.from_numpy(parts["held_x"])).argmax(1).numpy()
    assert (found == parts["held_y"]).mean() == score.accuracy, "what is downloaded scores what is reported"
    assert set(workload.labels()) == set(range(5))
