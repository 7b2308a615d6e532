"""Objectives of networks: losses as sums over samples, and which outputs are correct."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everyone reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A loss, and the number of correct outputs if that is defined."""

    loss_sum: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    right: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None
    outputs: Callable[[int], int] = lambda classes: classes
    """Number of outputs for this many classes."""


def _squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 0.5 * F.mse_loss(outputs.squeeze(1), targets, reduction="sum")


def _log_odds(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(outputs.squeeze(1), targets.to(outputs.dtype), reduction="sum")


CROSS_ENTROPY = Objective(
    loss_sum=lambda outputs, targets: F.cross_entropy(outputs, targets, reduction="sum"),
    right=lambda outputs, targets: outputs.argmax(1) == targets,
)
MARGIN = Objective(
    loss_sum=lambda outputs, targets: F.multi_margin_loss(outputs, targets, reduction="sum"),
    right=CROSS_ENTROPY.right,
)
LOG_ODDS = Objective(
    loss_sum=_log_odds,
    right=lambda outputs, targets: (outputs.squeeze(1) > 0.0) == (targets > 0),
    outputs=lambda classes: 1,
)
SQUARED = Objective(loss_sum=_squared, right=None, outputs=lambda classes: 1)
