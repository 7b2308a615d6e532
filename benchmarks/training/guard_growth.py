"""Whether a guard finds the larger global batches that harm convergence, and only those.

Jobs are drawn from a seed: model, global batch, learning rate, momentum, the rule that the learning rate follows, and
when the global batch doubles. Each is trained on digits with and without the change. A change is *harmful* if the
held-out loss at equal samples, over the last third of 120 batches of the smaller size, exceeds that without it by more
than a tenth, and *harmless* if by less than 2 %. Jobs in between are not counted. Drawing ends with ten of each kind.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TextIO

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from controlplane.core.choices import Judgement
from controlplane.policies.guard.loss_forecast import LossForecast
from controlplane.protocol.filling import lr_scale
from controlplane.protocol.guard import Guard

KIND: Final = 10
"""Number of jobs of each kind."""

AFTER: Final = 120
"""Batches of the smaller size after the change."""

LAST: Final = 40
"""Of these, those over which the held-out loss is compared."""

HARMFUL: Final = 0.10
HARMLESS: Final = 0.02
LARGE: Final = 1.0
"""Harm that doubles the held-out loss, or more."""

MOST_LOSS: Final = 2.2
"""A job with a higher loss has not learned anything: random guesses of ten classes have 2.3."""

TRAINED: Final = 1400
"""Samples; the rest is held out."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One job."""

    number: int
    model: str
    batch: int
    lr: float
    momentum: float
    rule: str
    change_after: int
    """Iterations."""

    @property
    def title(self) -> str:
        """The job in one line."""
        return f"{self.model}, batch {self.batch}, lr {self.lr:.3g} {self.rule}, momentum {self.momentum:g}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One job, and the guard's verdict."""

    title: str
    excess: float
    """Held-out loss with the larger batch over that without it, minus 1."""
    judgement: Judgement | None

    @property
    def is_found(self) -> bool:
        """Whether the guard calls it harmful."""
        return self.judgement is not None and self.judgement.verdict == "harmful"


def drawn(chance: np.random.Generator, number: int) -> Drawn:
    """The next job."""
    model = str(chance.choice(["softmax", "mlp"]))
    batch = int(chance.choice([32, 64, 128, 256, 512]))
    momentum = float(chance.choice([0.0, 0.0, 0.9]))
    lr = float(np.exp(chance.uniform(np.log(0.02), np.log(3.0)))) * (0.2 if momentum else 1.0)
    rule = str(chance.choice(["linear", "square-root"]))
    change_after = int(chance.integers(80, 160))
    return Drawn(
        number=number, model=model, batch=batch, lr=lr, momentum=momentum, rule=rule, change_after=change_after
    )


def trained(job: Drawn, *, grows: bool) -> tuple[float, Judgement | None]:
    """The held-out loss, and the guard's judgement if the batch grows."""
    inputs, labels = _digits()
    torch.manual_seed(job.number)
    wide = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    module = wide if job.model == "mlp" else nn.Linear(64, 10)
    optimizer = torch.optim.SGD(module.parameters(), lr=job.lr, momentum=job.momentum)
    chance, rule = np.random.default_rng(job.number), LossForecast(Guard())
    state, judgement, held_out = rule.start(), None, []
    batch, samples, iteration = job.batch, 0, 0
    end = (job.change_after + AFTER) * job.batch
    while samples < end:
        if grows and iteration == job.change_after:
            batch *= 2
            optimizer.param_groups[0]["lr"] *= lr_scale(job.rule, batch, job.batch)
            state, _ = rule.relaxed(state)
        chosen = torch.from_numpy(chance.integers(0, TRAINED, batch))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(inputs[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        samples, iteration = samples + batch, iteration + 1
        state, found = rule.observe(samples, loss.item(), state)
        judgement = judgement or found
        if samples > end - LAST * job.batch:
            with torch.no_grad():
                held_out.append(nn.functional.cross_entropy(module(inputs[TRAINED:]), labels[TRAINED:]).item())
    mean = float(np.mean(held_out))
    return (mean if math.isfinite(mean) else math.inf), judgement


def _digits() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    return torch.tensor(images[order] / 16.0, dtype=torch.float32), torch.tensor(labels[order])


def rows(seed: int, count: int) -> tuple[list[Row], list[Row]]:
    """``count`` harmed jobs, and as many that are not."""
    chance, number = np.random.default_rng(seed), 0
    harmful: list[Row] = []
    harmless: list[Row] = []
    while len(harmful) < count or len(harmless) < count:
        number += 1
        job = drawn(chance, number)
        plain, _ = trained(job, grows=False)
        if plain > MOST_LOSS:
            continue
        changed, judgement = trained(job, grows=True)
        found = Row(title=job.title, excess=changed / plain - 1.0, judgement=judgement)
        kind = harmful if found.excess > HARMFUL else harmless if found.excess < HARMLESS else None
        if kind is not None and len(kind) < count:
            kind.append(found)
    return harmful, harmless


def main(arguments: Sequence[str] | None = None, out: TextIO | None = None) -> int:
    """Print one line for each job; 1 if a harm that doubles the loss is missed, or more than one alarm is false."""
    parser = argparse.ArgumentParser(prog="manage.py bench guard-growth", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="of the jobs")
    parser.add_argument("--jobs", type=int, default=2 * KIND, help="half of them harmed (%(default)s)")
    options = parser.parse_args(arguments)
    stream = out or sys.stdout
    torch.set_num_threads(1)
    harmful, harmless = rows(options.seed, options.jobs // 2)
    stream.write(f"{'loss with the larger batch':>26}  {'verdict':9}{'at':>4}  job\n")
    for row in (*harmful, *harmless):
        verdict, at = (row.judgement.verdict, row.judgement.batches) if row.judgement is not None else ("none", 0)
        stream.write(f"{row.excess:+26.1%}  {verdict:9}{at:4}  {row.title}\n")
    large = [row for row in harmful if row.excess >= LARGE]
    false = sum(row.is_found for row in harmless)
    stream.write(
        f"{sum(row.is_found for row in large)} of {len(large)} found that double the loss,"
        f" {sum(row.is_found for row in harmful) - sum(row.is_found for row in large)} of"
        f" {len(harmful) - len(large)} other harms, {false} false alarms in {len(harmless)} harmless ones\n"
    )
    return int(not all(row.is_found for row in large) or false > 1)


if __name__ == "__main__":
    sys.exit(main())
