"""Residual networks for small images (He et al., section 4.2), with group norm instead of batch norm.

Batch norm depends on the samples of a worker's share: the loss of a sample would depend on its share, sums over workers
would not equal the sum over the batch, and each worker would have its own statistics. Group norm uses one sample at a
time, so any division of the samples gives the same gradient.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everyone reads
from torch import nn

GROUP_CHANNELS = 8


def _conv(channels: int, filters: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(channels, filters, 3, stride=stride, padding=1, bias=False)


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(channels // GROUP_CHANNELS, channels)


class Block(nn.Module):
    """Two convolutions and a shortcut, which skips pixels and pads channels with zeros if the size changes."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.stride, self.padding = (1, 0) if channels == filters else (2, filters - channels)
        self.conv1, self.norm1 = _conv(channels, filters, self.stride), _norm(filters)
        self.conv2, self.norm2 = _conv(filters, filters, 1), _norm(filters)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(samples, channels, h, w) to (samples, filters, h / stride, w / stride)."""
        short = F.pad(images[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.padding))
        inner = F.relu(self.norm1(self.conv1(images)))
        return F.relu(self.norm2(self.conv2(inner)) + short)


class ResNet(nn.Module):
    """Three stages of (depth - 2) / 6 blocks, doubling the channels; ResNet-32 with depth 32."""

    def __init__(self, channels: int, classes: int, *, depth: int, width: int) -> None:
        super().__init__()
        self.conv, self.norm = _conv(channels, width, 1), _norm(width)
        blocks, filters = [], width
        for stage in range(3):
            for _ in range((depth - 2) // 6):
                blocks.append(Block(filters, width << stage))
                filters = width << stage
        self.blocks = nn.Sequential(*blocks)
        self.linear = nn.Linear(filters, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(samples, channels, h, w) to (samples, classes)."""
        inner = self.blocks(F.relu(self.norm(self.conv(images))))
        return self.linear(inner.mean(dim=(2, 3)))  # type: ignore[no-any-return]
