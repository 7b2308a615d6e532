"""Sizes of the tensors of well-known networks, in the order of their layers."""

from collections.abc import Iterator

VGG16_CHANNELS = (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
RESNET50_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
ALEXNET_CONVOLUTIONS = ((3, 64, 11), (64, 192, 5), (192, 384, 3), (384, 256, 3), (256, 256, 3))


def vgg16() -> dict[str, int]:
    """VGG16 for 1,000 classes (Simonyan and Zisserman, configuration D): 138,357,544 parameters."""
    sizes, channels = [], 3
    for filters in VGG16_CHANNELS:
        sizes += [channels * filters * 9, filters]
        channels = filters
    return _named([*sizes, *_layers(512 * 7 * 7, 4096, 4096, 1000)])


def alexnet() -> dict[str, int]:
    """AlexNet in one column, for 1,000 classes: 61,100,840 parameters."""
    convolutions = [n for inputs, filters, side in ALEXNET_CONVOLUTIONS for n in (inputs * filters * side**2, filters)]
    return _named([*convolutions, *_layers(256 * 6 * 6, 4096, 4096, 1000)])


def resnet50() -> dict[str, int]:
    """ResNet50 for 1,000 classes (He et al.), including the scales and shifts of its norms: 25,557,032 parameters."""
    sizes, channels = [3 * 64 * 49, 64, 64], 64
    for width, blocks in RESNET50_STAGES:
        for block in range(blocks):
            sizes += _bottleneck(channels, width, shortcut=block == 0)
            channels = 4 * width
    return _named([*sizes, *_layers(2048, 1000)])


def _bottleneck(channels: int, width: int, *, shortcut: bool) -> Iterator[int]:
    convolutions = [(channels * width, width), (width * width * 9, width), (width * 4 * width, 4 * width)]
    if shortcut:
        convolutions.append((channels * 4 * width, 4 * width))
    for weights, filters in convolutions:
        yield from (weights, filters, filters)


def _layers(inputs: int, *units: int) -> Iterator[int]:
    for outputs in units:
        yield from (inputs * outputs, outputs)
        inputs = outputs


def _named(sizes: list[int]) -> dict[str, int]:
    return {f"tensor{at}": size for at, size in enumerate(sizes)}
