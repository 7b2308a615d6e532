"""The parameters of ResNet101-v2 in MXNet's order: the model of PSLD's Tables 1 and 2."""

UNITS = (3, 4, 23, 3)
WIDTHS = (256, 512, 1024, 2048)


def resnet101_v2() -> list[int]:
    """Elements of its 310 tensors: each bn is gamma and beta; convolutions have no bias."""
    sizes = [3, 3, 64 * 3 * 7 * 7, 64, 64]
    before = 64
    for units, width in zip(UNITS, WIDTHS, strict=True):
        inner = width // 4
        for unit in range(units):
            sizes += [before, before, before * inner]
            sizes += [inner, inner, inner * inner * 9]
            sizes += [inner, inner, inner * width]
            if unit == 0:
                sizes.append(before * width)
            before = width
    return [*sizes, 2048, 2048, 2048 * 1000, 1000]
