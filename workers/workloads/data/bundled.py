"""The datasets that are included in scikit-learn."""

from functools import cache
from typing import Any

from workers.workloads.data.examples import Dataset, Facts, Split, divide

_SHAPES = {"digits": (1, 8, 8), "breast-cancer": (30,), "wine": (13,), "diabetes": (10,)}
_CLASSES = {"digits": 10, "breast-cancer": 2, "wine": 3, "diabetes": 0}


def bundled(name: str) -> Dataset:
    """The dataset of that name in the catalogue."""
    return Dataset(name, Facts(shape=_SHAPES[name], classes=_CLASSES[name]), lambda: _load(name))


@cache
def _load(name: str) -> Split:
    import sklearn.datasets  # takes 1.5 s: imported only to read the data

    load: Any = getattr(sklearn.datasets, f"load_{name.replace('-', '_')}")
    features, targets = load(return_X_y=True)
    if name == "diabetes":
        targets = (targets - targets.mean()) / targets.std()
    return divide(features.reshape(-1, *_SHAPES[name]), targets)
