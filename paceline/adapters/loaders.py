"""Which of a library's data loaders is for training."""

from typing import Any

from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler


def is_for_training(loader: Any) -> bool:
    """Whether shares decide its batch sizes: only if it shuffles. Loaders for evaluation keep the samples' order."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return False
    sampler = loader.sampler
    return isinstance(sampler, RandomSampler) or (isinstance(sampler, DistributedSampler) and bool(sampler.shuffle))
