"""Elements of the parameter tensors of four networks, in the order in which they are declared."""

from typing import Final

Tensors = tuple[int, ...]


def _layers(*layers: tuple[int, int]) -> Tensors:
    """Weight and bias of each layer: inputs per output (times the kernel's area), outputs."""
    return tuple(size for inputs, outputs in layers for size in (inputs * outputs, outputs))


ALEXNET: Final = _layers(
    *((3 * 121, 64), (64 * 25, 192), (192 * 9, 384), (384 * 9, 256), (256 * 9, 256)),
    *((256 * 36, 4096), (4096, 4096), (4096, 1000)),
)
VGG16: Final = _layers(
    *((3 * 9, 64), (64 * 9, 64), (64 * 9, 128), (128 * 9, 128), (128 * 9, 256), (256 * 9, 256), (256 * 9, 256)),
    *((256 * 9, 512), (512 * 9, 512), (512 * 9, 512), (512 * 9, 512), (512 * 9, 512), (512 * 9, 512)),
    *((512 * 49, 4096), (4096, 4096), (4096, 1000)),
)


def _convolution(inputs: int, outputs: int, area: int) -> Tensors:
    """Without a bias, but with the two vectors of its batch norm."""
    return inputs * outputs * area, outputs, outputs


def _resnet50() -> Tensors:
    sizes = [*_convolution(3, 64, 49)]
    width = 64
    for narrow, units in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for unit in range(units):
            sizes += _convolution(width, narrow, 1) + _convolution(narrow, narrow, 9)
            sizes += _convolution(narrow, 4 * narrow, 1)
            if unit == 0:
                sizes += _convolution(width, 4 * narrow, 1)
            width = 4 * narrow
    return *sizes, 2048 * 1000, 1000


RESNET50: Final = _resnet50()


def _resnet101() -> Tensors:
    """Version 2 in MXNet's order: each batch norm has gamma and beta, convolutions have no bias."""
    sizes = [3, 3, 64 * 3 * 7 * 7, 64, 64]
    before = 64
    for units, width in zip((3, 4, 23, 3), (256, 512, 1024, 2048), strict=True):
        inner = width // 4
        for unit in range(units):
            sizes += [before, before, before * inner]
            sizes += [inner, inner, inner * inner * 9]
            sizes += [inner, inner, inner * width]
            if unit == 0:
                sizes.append(before * width)
            before = width
    return (*sizes, 2048, 2048, 2048 * 1000, 1000)


RESNET101: Final = _resnet101()
