"""Options of each workload and dataset: types, ranges, defaults and descriptions."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from controlplane.protocol.parts import Part, Penalty, Seed
from controlplane.protocol.text import RELATIVE_PATH, SEGMENT

Samples = Annotated[int, Meta(ge=10, le=10_000_000, description="Samples, held-out ones among them.")]
Features = Annotated[int, Meta(ge=1, le=10_000_000, description="Features of a sample.")]
Classes = Annotated[int, Meta(ge=2, le=10_000, description="Classes that labels may name, from 0 up.")]
Side = Annotated[int, Meta(ge=2, le=1024, description="Pixels along each side of an image.")]
Noise = Annotated[float, Meta(ge=0.0, le=100.0, description="Deviation of what is added to the rule in the data.")]
DataSeed = Annotated[Seed, Meta(description="Of the data set, not of the job.")]
Path = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=500,
        pattern=RELATIVE_PATH,
        description="File or folder within the data folder of every machine.",
    ),
]


WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
"""The ten words of Speech Commands that are usually classified."""


class NoOptions(Part, frozen=True, kw_only=True):
    """Nothing can be set."""


class LinearOptions(Part, frozen=True, kw_only=True):
    """Options of linear models that may be penalised."""

    l2: Annotated[Penalty, Meta(description="Weight of half the squared norm of all parameters.")] = 0.0


class RidgeOptions(Part, frozen=True, kw_only=True):
    """Options of ridge regression."""

    l2: Annotated[Penalty, Meta(description="Weight of half the squared norm of all parameters.")] = 0.01


class LassoOptions(Part, frozen=True, kw_only=True):
    """Options of the lasso."""

    l1: Annotated[Penalty, Meta(description="Weight of the sum of absolute values, by a proximal step.")] = 0.05


class KMeansOptions(Part, frozen=True, kw_only=True):
    """Options of k-means."""

    clusters: Annotated[int, Meta(ge=1, le=100_000, description="Centres to be found.")] = 10
    memory: Annotated[
        float, Meta(ge=0.0, le=1.0, description="Share of the older sums that an iteration keeps; 0.0: Lloyd's.")
    ] = 0.5


class AlsOptions(Part, frozen=True, kw_only=True):
    """Options of matrix factorisation by alternating least squares. A sample is a user with all ratings."""

    rank: Annotated[int, Meta(ge=1, le=200, description="Factors of each user and item.")] = 8
    l2: Annotated[float, Meta(gt=0.0, le=1e6, description="Penalty, times the number of ratings of each.")] = 0.1
    memory: Annotated[
        float, Meta(ge=0.0, le=1.0, description="Share of the older sums that an iteration keeps; 0.0: plain ALS.")
    ] = 0.5


class MlpOptions(Part, frozen=True, kw_only=True):
    """Options of networks of fully connected layers."""

    hidden: Annotated[
        list[Annotated[int, Meta(ge=1, le=65_536)]],
        Meta(min_length=1, max_length=50, description="Units of each hidden layer, first to last."),
    ] = msgspec.field(default_factory=lambda: [64])


class ResNetOptions(Part, frozen=True, kw_only=True):
    """Options of residual networks for small images."""

    depth: Annotated[Literal[8, 14, 20, 32, 44, 56, 110], Meta(description="Layers, 6 n + 2.")] = 32
    width: Annotated[int, Meta(ge=8, le=256, multiple_of=8, description="Channels of the first stage.")] = 16


class LstmOptions(Part, frozen=True, kw_only=True):
    """Options of the recurrent network."""

    hidden: Annotated[int, Meta(ge=1, le=4096, description="Units of each layer.")] = 64
    layers: Annotated[int, Meta(ge=1, le=8, description="Layers, one on the other.")] = 1


class ShapeOptions(Part, frozen=True, kw_only=True):
    """Options of the shapes of large networks."""

    scale: Annotated[float, Meta(gt=0.0, le=1.0, description="Share of each tensor's elements that is kept.")] = 1.0


class BlobsData(Part, frozen=True, kw_only=True):
    """Gaussian clouds."""

    samples: Samples = 2000
    features: Features = 16
    classes: Classes = 10
    spread: Noise = 1.0
    seed: DataSeed = 1


class LinesData(Part, frozen=True, kw_only=True):
    """A linear rule of few features, with noise."""

    samples: Samples = 2000
    features: Features = 50
    informative: Annotated[int, Meta(ge=1, description="Features that the rule uses.")] = 10
    noise: Noise = 0.1
    seed: DataSeed = 1


class UrlsData(Part, frozen=True, kw_only=True):
    """Sparse rows, most features rare, of two classes."""

    samples: Samples = 4000
    features: Features = 20_000
    present: Annotated[int, Meta(ge=1, le=10_000, description="Features that a row has.")] = 100
    seed: DataSeed = 1


class ImagesData(Part, frozen=True, kw_only=True):
    """Images of patterns, one for each class, shifted and with noise."""

    samples: Samples = 2000
    noise: Noise = 1.0
    seed: DataSeed = 1


class WritersData(Part, frozen=True, kw_only=True):
    """Images of signs by writers, each of whom has a hand and favourite signs."""

    samples: Samples = 3000
    writers: Annotated[int, Meta(ge=1, le=10_000, description="Those who wrote.")] = 32
    noise: Noise = 0.5
    seed: DataSeed = 1


class KeywordsData(Part, frozen=True, kw_only=True):
    """Series of spectra, each class with its own melody."""

    samples: Samples = 1500
    classes: Classes = 10
    frames: Annotated[int, Meta(ge=2, le=1000, description="Steps of time.")] = 32
    bands: Annotated[int, Meta(ge=1, le=1000, description="Values at each step.")] = 20
    noise: Noise = 0.5
    seed: DataSeed = 1


class RatingsData(Part, frozen=True, kw_only=True):
    """Ratings from 1 to 5 that follow factors of users and items; few items have most of them."""

    users: Annotated[int, Meta(ge=10, le=1_000_000, description="Users; each is a sample.")] = 600
    items: Annotated[int, Meta(ge=2, le=1_000_000, description="Items that are rated.")] = 300
    ratings: Annotated[int, Meta(ge=2, le=10_000, description="Ratings of an average user.")] = 40
    seed: DataSeed = 1


class TrafficData(Part, frozen=True, kw_only=True):
    """No data at all."""

    samples: Annotated[int, Meta(ge=10, le=10_000_000, description="Samples that it pretends to have.")] = 50_000


class FolderData(Part, frozen=True, kw_only=True):
    """Files of one known form."""

    path: Path


class IdxData(Part, frozen=True, kw_only=True):
    """A folder with the four files of MNIST's form, plain or with gzip."""

    path: Path
    classes: Classes = 10
    side: Side = 28
    split: Annotated[
        str,
        Meta(
            max_length=50,
            pattern=SEGMENT,
            description="Start of the files' names, as EMNIST has them; empty: MNIST's own.",
        ),
    ] = ""


class SvmlightData(Part, frozen=True, kw_only=True):
    """Rows of ``label index:value ...``."""

    path: Path
    features: Features
    classes: Classes = 2
    held: Annotated[
        str,
        Meta(
            max_length=500,
            pattern=RELATIVE_PATH,
            description="File of the held-out rows, beside the file `path` or in that folder; empty: a tenth.",
        ),
    ] = ""


class WavData(Part, frozen=True, kw_only=True):
    """A folder per word, with recordings of one second at 16 kHz."""

    path: Path
    words: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=100, pattern=SEGMENT)]],
        Meta(min_length=2, max_length=1000, description="The folders, one for each class."),
    ] = msgspec.field(default_factory=lambda: list(WORDS))
    frames: Annotated[int, Meta(ge=2, le=1000, description="Steps of time.")] = 32
    bands: Annotated[int, Meta(ge=1, le=200, description="Bands of the spectrum at each step.")] = 20
