"""Ray Train: replacements for functions of ``ray.train.torch``, and ``step``.

    from paceline.adapters.ray_train import prepare_data_loader, prepare_model, step

    step(loss)                                      # behind optimizer.step()

Workers get the driver's ``PACELINE_*`` variables if Ray starts them on the driver's machine or if ``paceline run``
knows the cluster; otherwise pass ``runtime_env()`` to ``ray.init``. Without a control plane these are Ray's own
functions.
"""

import os
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import ray.train
import ray.train.torch
from torch.utils._pytree import tree_map

from paceline.adapters.loaders import is_for_training
from paceline.attaching import attach
from paceline.loading import Loader
from paceline.pacer import Pacer
from paceline.variables import RANK_VARIABLES


def runtime_env() -> dict[str, Any]:
    """The environment variables that a worker on another node needs to attach, for ``ray.init(runtime_env=...)``."""
    return {"env_vars": {name: os.environ[name] for name in RANK_VARIABLES if name in os.environ}}


@cache
def pacer() -> Pacer:
    """The pacer of this worker."""
    context = ray.train.get_context()
    return attach(rank=context.get_world_rank(), world=context.get_world_size())


def prepare_model(model: Any, *args: Any, **named: Any) -> Any:
    """As in Ray; also watches the model."""
    made = ray.train.torch.prepare_model(model, *args, **named)
    return pacer().watch(made) if pacer().active else made


def prepare_data_loader(
    data_loader: Any, add_dist_sampler: bool = True, *, seed: int = 0, accumulate: int = 1, **named: Any
) -> Any:
    """As in Ray, or a loader that follows the shares; ``seed`` and ``accumulate`` are those of ``pacer.loader``."""
    if not (pacer().active and is_for_training(data_loader, pacer())):
        return ray.train.torch.prepare_data_loader(data_loader, add_dist_sampler, **named)
    paced, device = (
        cast(Loader, pacer().loader(data_loader, seed=seed, accumulate=accumulate)),
        ray.train.torch.get_device(),
    )
    # Ray's own loader prefetches a batch while the current one is computed; that would be counted as compute time.
    return paced if device.type == "cpu" or not named.get("move_to_device", True) else OnDevice(paced, device)


class OnDevice:
    """The batches of a loader, on the worker's device."""

    def __init__(self, loader: Loader, device: Any) -> None:
        self.loader, self.device = loader, device
        self.dataset, self.sampler = loader.dataset, loader.sampler

    def __len__(self) -> int:
        """Number of batches in a whole pass."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield tree_map(self._moved, batch)

    def _moved(self, leaf: Any) -> Any:
        return leaf.to(self.device, non_blocking=True) if hasattr(leaf, "to") else leaf


def step(loss: Any = None) -> None:
    """End the iteration."""
    pacer().step(loss)
