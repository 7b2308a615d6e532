"""A recurrent network for series."""

import torch
from torch import nn


class Lstm(nn.Module):
    """An LSTM that reads (samples, steps, bands), or images row by row; the class follows from its last state."""

    def __init__(self, bands: int, classes: int, *, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(bands, hidden, num_layers=layers, batch_first=True)
        self.linear = nn.Linear(hidden, classes)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """To (samples, classes)."""
        if series.dim() == 4:  # rows of an image are steps; its channels are concatenated
            series = series.transpose(1, 2).flatten(2)
        outputs, _ = self.lstm(series)
        return self.linear(outputs[:, -1])  # type: ignore[no-any-return]
