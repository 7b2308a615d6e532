"""Updates of the buffers in the flat vector: no optimizer changes them; they change by the mean of the workers'
changes.
"""

from collections.abc import Mapping

import torch

from workers.workloads.layout import Layout
from workers.workloads.shape import Clipping, Rule


class BufferedRule:
    """A rule for the parameters of a block, and the sample-weighted mean for the buffers in it.

    The wrapped rule gets no gradient for buffers and does not change them, but its state covers the whole block, so
    that the block is divided and joined like any other.

    Args:
        rule: changes ``values``.
        layout: of the flat vector, in which the block starts at ``start``.
    """

    def __init__(self, rule: Rule, values: torch.Tensor, layout: Layout, *, start: int) -> None:
        self._rule, self._values = rule, values
        self._edge = max(0, layout.edge - start)
        self._counts = [
            slice(max(piece.start, self._edge) - self._edge, piece.stop - self._edge)
            for piece in layout.span(start, start + len(values))
            if piece.entry.kind == "buffer" and not piece.entry.dtype.startswith("float")
        ]

    def squared_norm(self, total: torch.Tensor, samples: int) -> float:
        """As the parameters' rule: buffers have no gradient.

        Raises:
            TypeError: if that rule cannot compute it.
        """
        if not isinstance(self._rule, Clipping):
            raise TypeError(f"{type(self._rule).__name__} cannot compute the norm of a gradient")
        return self._rule.squared_norm(total, samples)

    def apply(self, total: torch.Tensor, samples: int, scale: float = 1.0, *, norm: float | None = None) -> None:
        """Move the buffers by the mean change times ``scale``; integers by the whole change, rounded."""
        change = total[self._edge :] / samples
        moved = self._values[self._edge :] + change * scale
        for count in self._counts:
            moved[count] = self._values[self._edge :][count] + change[count].round()
        total[self._edge :] = 0.0
        if norm is not None and isinstance(self._rule, Clipping):
            self._rule.apply(total, samples, scale, norm=norm)
        else:
            self._rule.apply(total, samples, scale)
        self._values[self._edge :] = moved

    def state(self) -> dict[str, torch.Tensor]:
        """As the parameters' rule."""
        return self._rule.state()

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """As the parameters' rule."""
        self._rule.restore(state)


def beside_buffers(rule: Rule, values: torch.Tensor, layout: Layout, *, start: int) -> Rule:
    """``rule`` itself for a block without buffers, else wrapped."""
    has_buffers = layout.edge < layout.size and start + len(values) > layout.edge
    return BufferedRule(rule, values, layout, start=start) if has_buffers else rule
