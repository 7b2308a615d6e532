"""Cuts the flattened parameters into blocks, the unit of placement."""

from controlplane.protocol.orders import ELEMENT_BYTES

BLOCK_BYTES = 4 * 1024 * 1024
"""Largest block (PSLD section 5.2)."""


def cut_blocks(tensor_sizes: list[int], *, block_bytes: int = BLOCK_BYTES) -> list[tuple[int, int]]:
    """Slices ``[start, stop)`` of the flattened parameters, in elements, that cover it in order.

    A block never spans two tensors, so that placements by tensor and by block can be compared; tensors above
    ``block_bytes`` are cut into equal parts as far as that goes. A tensor without elements has no block.

    Args:
        tensor_sizes: elements of each parameter tensor, in the model's order.
        block_bytes: the largest block.
    """
    slices: list[tuple[int, int]] = []
    start = 0
    for size in tensor_sizes:
        parts = -(-size * ELEMENT_BYTES // block_bytes)
        slices += [(start + size * part // parts, start + size * (part + 1) // parts) for part in range(parts)]
        start += size
    return slices
