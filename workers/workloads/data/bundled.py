"""The data sets that come with scikit-learn."""

from functools import cache
from typing import Any

from workers.workloads.data.examples import Dataset, Facts, Split, divide

_SHAPES = {"digits": (1, 8, 8), "breast-cancer": (30,), "wine": (13,), "diabetes": (10,)}
_CLASSES = {"digits": 10, "breast-cancer": 2, "wine": 3, "diabetes": 0}


def bundled(name: str) -> Dataset:
    """One of them by the name of the catalogue."""
    return Dataset(name, Facts(shape=_SHAPES[name], classes=_CLASSES[name]), lambda: _load(name))


@cache
def _load(name: str) -> Split:
    import sklearn.datasets  # a second and a half: only those who read the data pay it

    load: Any = getattr(sklearn.datasets, f"load_{name.replace('-', '_')}")
    features, targets = load(return_X_y=True)
    if name == "diabetes":
        targets = (targets - targets.mean()) / targets.std()
    return divide(features.reshape(-1, *_SHAPES[name]), targets)
