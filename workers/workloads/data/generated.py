"""Datasets generated from a seed, in the shapes of those that the papers used."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch

from controlplane.protocol import options as opt
from workers.workloads.data.examples import HELD_SHARE, Dataset, Facts, SparseTable, Split, divide

Rng = np.random.Generator


def generated(name: str, options: Any) -> Dataset:
    """The dataset of that name in the catalogue."""
    facts, make = _MAKERS[name]
    return Dataset(name, facts(options), lambda: _made(make, options))


@cache
def _made(make: Callable[[Any, Rng], Split], options: Any) -> Split:
    return make(options, np.random.default_rng(options.seed))


def _blobs(options: opt.BlobsData, rng: Rng) -> Split:
    centres = rng.normal(scale=3.0, size=(options.classes, options.features))
    labels = rng.integers(options.classes, size=options.samples)
    return divide(centres[labels] + rng.normal(scale=options.spread, size=(options.samples, options.features)), labels)


def _lines(options: opt.LinesData, rng: Rng) -> Split:
    """Linear data with only ``informative`` relevant features, so a lasso has zeros to find; targets have mean 0."""
    weights = np.zeros(options.features)
    chosen = rng.choice(options.features, size=min(options.informative, options.features), replace=False)
    weights[chosen] = rng.choice([-1.0, 1.0], size=len(chosen)) * rng.uniform(0.5, 1.5, size=len(chosen))
    features = rng.normal(size=(options.samples, options.features))
    targets = features @ weights + rng.normal(scale=options.noise, size=options.samples)
    return divide(features, targets - targets.mean())


def _urls(options: opt.UrlsData, rng: Rng) -> Split:
    """Few columns are common and most are rare, like words of URLs; the class depends on both."""
    present = min(options.present, options.features)
    weights = rng.normal(size=options.features) / np.sqrt(present)
    columns = np.minimum(
        (options.features * rng.power(0.3, size=(options.samples, present))).astype(np.int64), options.features - 1
    )
    scores = weights[columns].sum(axis=1)
    labels = (scores > np.median(scores)).astype(np.int64)
    held = round(options.samples * HELD_SHARE)
    return Split(train=_ones(columns[held:], labels[held:]), held=_ones(columns[:held], labels[:held]))


def _ones(columns: np.ndarray, labels: np.ndarray) -> SparseTable:
    """Sparse rows of length 1 whose present features are equal."""
    rows, present = columns.shape
    return SparseTable(
        starts=torch.arange(0, (rows + 1) * present, present),
        columns=torch.from_numpy(columns.reshape(-1)),
        values=torch.full((columns.size,), present**-0.5),
        targets=torch.from_numpy(labels),
    )


def _images(shape: tuple[int, int, int]) -> Callable[[opt.ImagesData, Rng], Split]:
    """Each class is a smooth pattern; a sample is a copy shifted by up to two pixels, with noise."""

    def make(options: opt.ImagesData, rng: Rng) -> Split:
        patterns = np.stack([_pattern(shape, rng) for _ in range(10)])
        labels = rng.integers(10, size=options.samples)
        return divide(_shifted(patterns[labels], rng, options.noise), labels)

    return make


def _writers(options: opt.WritersData, rng: Rng) -> Split:
    """Each writer adds a pattern to every character and prefers some characters: non-IID data."""
    signs = np.stack([_pattern((1, 28, 28), rng) for _ in range(62)])
    hands = np.stack([_pattern((1, 28, 28), rng) for _ in range(options.writers)])
    favourites = rng.dirichlet(np.full(62, 0.3), size=options.writers)
    writers = rng.integers(options.writers, size=options.samples)
    labels = np.array([rng.choice(62, p=favourites[writer]) for writer in writers], dtype=np.int64)
    images = _shifted(signs[labels] + 0.3 * hands[writers], rng, options.noise)
    return divide(images, labels, writers=writers)


def _pattern(shape: tuple[int, int, int], rng: Rng) -> np.ndarray:
    """A smooth image: coarse noise, interpolated."""
    channels, height, width = shape
    coarse = rng.normal(size=(channels, 7, 7))
    rows, columns = np.linspace(0, 6, height).round().astype(int), np.linspace(0, 6, width).round().astype(int)
    return coarse[:, rows][:, :, columns]


def _shifted(images: np.ndarray, rng: Rng, noise: float) -> np.ndarray:
    moved = np.empty(images.shape, dtype=np.float32)
    for at, (down, right) in enumerate(rng.integers(-2, 3, size=(len(images), 2))):
        moved[at] = np.roll(images[at], (down, right), axis=(1, 2))
    return moved + rng.normal(scale=noise, size=images.shape).astype(np.float32)


def _keywords(options: opt.KeywordsData, rng: Rng) -> Split:
    """Each class is a sequence of bands over time; a sample starts it earlier or later, with noise."""
    melodies = rng.normal(size=(options.classes, options.frames, options.bands))
    labels = rng.integers(options.classes, size=options.samples)
    starts = rng.integers(-2, 3, size=options.samples)
    series = np.stack([np.roll(melodies[label], start, axis=0) for label, start in zip(labels, starts, strict=True)])
    return divide(series + rng.normal(scale=options.noise, size=series.shape), labels)


def _ratings(options: opt.RatingsData, rng: Rng) -> Split:
    """Factors of four dimensions with noise, scaled to 1 to 5; a user's ratings are split between both parts."""
    users, items = rng.normal(size=(options.users, 4)) / 2, rng.normal(size=(options.items, 4)) / 2
    popularity = 1.0 / np.arange(1, options.items + 1) ** 0.7
    popularity /= popularity.sum()
    train, held = [], []
    for user in users:
        count = int(np.clip(rng.poisson(options.ratings), 2, options.items))
        rated = np.sort(rng.choice(options.items, size=count, replace=False, p=popularity))
        given = np.clip(3.0 + 2.0 * items[rated] @ user + rng.normal(scale=0.3, size=count), 1.0, 5.0)
        hidden = rng.random(count) < HELD_SHARE
        train.append((rated[~hidden], given[~hidden]))
        held.append((rated[hidden], given[hidden]))
    return Split(train=_rows(train), held=_rows(held))


def _rows(rows: list[tuple[np.ndarray, np.ndarray]]) -> SparseTable:
    starts = np.cumsum([0, *(len(columns) for columns, _ in rows)])
    return SparseTable(
        starts=torch.from_numpy(starts),
        columns=torch.from_numpy(np.concatenate([columns for columns, _ in rows])),
        values=torch.from_numpy(np.concatenate([values for _, values in rows]).astype(np.float32)),
        targets=torch.zeros(len(rows)),
    )


_MAKERS: Mapping[str, tuple[Callable[[Any], Facts], Callable[[Any, Rng], Split]]] = {
    "blobs": (lambda o: Facts(shape=(o.features,), classes=o.classes), _blobs),
    "lines": (lambda o: Facts(shape=(o.features,), classes=0), _lines),
    "urls-like": (lambda o: Facts(shape=(o.features,), classes=2), _urls),
    "mnist-like": (lambda o: Facts(shape=(1, 28, 28), classes=10), _images((1, 28, 28))),
    "cifar-like": (lambda o: Facts(shape=(3, 32, 32), classes=10), _images((3, 32, 32))),
    "femnist-like": (lambda o: Facts(shape=(1, 28, 28), classes=62), _writers),
    "keywords-like": (lambda o: Facts(shape=(o.frames, o.bands), classes=o.classes), _keywords),
    "movielens-like": (lambda o: Facts(shape=(o.items,), classes=0), _ratings),
}
