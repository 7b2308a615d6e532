"""Convolutional networks for images of (channels, height, width)."""

from torch import nn

Shape = tuple[int, ...]


def _conv(channels: int, filters: int, size: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, filters, size, padding=size // 2), nn.ReLU()]


def _head(shape: Shape, pools: int, filters: int, hidden: list[int], classes: int) -> list[nn.Module]:
    """Fully connected layers on the image after ``pools`` halvings."""
    features = filters * (shape[1] >> pools) * (shape[2] >> pools)
    layers: list[nn.Module] = [nn.Flatten()]
    for units in hidden:
        layers += [nn.Linear(features, units), nn.ReLU()]
        features = units
    return [*layers, nn.Linear(features, classes)]


def small_cnn(shape: Shape, classes: int) -> nn.Module:
    """Two convolutions of 16 and 32 channels with pooling, one linear layer."""
    layers = [*_conv(shape[0], 16, 3), nn.MaxPool2d(2), *_conv(16, 32, 3), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, *_head(shape, 2, 32, [], classes))


def lenet_5(shape: Shape, classes: int) -> nn.Module:
    """LeNet-5 with ReLU and max pooling; the second convolution is not padded, as in the original."""
    layers = [*_conv(shape[0], 6, 5), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    height, width = ((side // 2 - 4) // 2 for side in shape[1:])
    return nn.Sequential(*layers, *_head((16, height, width), 0, 16, [120, 84], classes))


def cifarnet(shape: Shape, classes: int) -> nn.Module:
    """Caffe's cifar10_quick: three 5 x 5 convolutions, the first with max pooling and the
    others with average pooling.
    """
    layers = [
        *(nn.Conv2d(shape[0], 32, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()),
        *_conv(32, 32, 5),
        nn.AvgPool2d(2),
        *_conv(32, 64, 5),
        nn.AvgPool2d(2),
    ]
    features = 64 * (shape[1] >> 3) * (shape[2] >> 3)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 64), nn.Linear(64, classes))


def femnist_cnn(shape: Shape, classes: int) -> nn.Module:
    """LEAF's network: convolutions of 32 and 64 channels, a layer of 2,048 units."""
    layers = [*_conv(shape[0], 32, 5), nn.MaxPool2d(2), *_conv(32, 64, 5), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, *_head(shape, 2, 64, [2048], classes))
