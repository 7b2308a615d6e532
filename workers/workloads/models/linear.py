"""One linear layer, for rows of any shape and for sparse rows."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everyone reads
from torch import nn

from workers.workloads.data.examples import Bag, Inputs


class Linear(nn.Module):
    """One output per class, or one for regression; sparse rows access only the columns that they have."""

    def __init__(self, features: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs, bias=bias)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """(samples, ...) to (samples, outputs)."""
        if not isinstance(inputs, Bag):
            return self.linear(inputs.flatten(1))  # type: ignore[no-any-return]
        summed = F.embedding_bag(
            inputs.columns,
            self.linear.weight.t(),
            inputs.offsets,
            mode="sum",
            per_sample_weights=inputs.values,
        )
        return summed if self.linear.bias is None else summed + self.linear.bias


class Mlp(nn.Sequential):
    """Fully connected layers with ReLU between them."""

    def __init__(self, features: int, hidden: list[int], outputs: int) -> None:
        layers: list[nn.Module] = [nn.Flatten()]
        for units in hidden:
            layers += [nn.Linear(features, units), nn.ReLU()]
            features = units
        super().__init__(*layers, nn.Linear(features, outputs))
