"""Whether a library's data loader is for training."""

from typing import Any

from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler

from paceline.pacer import Pacer

ITERABLE = "an IterableDataset (the adapter cannot tell training from evaluation): pass it to pacer.loader() yourself"
UNSHUFFLED = "a DataLoader that does not shuffle: give shuffle=True, or pass it to pacer.loader() yourself"
OTHER = "a {}, which is no DataLoader of torch: pass its data set to pacer.loader() yourself"


def is_for_training(loader: Any, pacer: Pacer) -> bool:
    """Whether shares decide its batch sizes: only if it shuffles.

    Loaders for evaluation keep the samples' order. The reason is passed to ``pacer``, which logs it if the script then
    trains with such a loader.
    """
    reason = _reason_against(loader)
    if reason:
        pacer.passed_over(reason)
    return not reason


def _reason_against(loader: Any) -> str:
    if not isinstance(loader, DataLoader):
        return OTHER.format(type(loader).__name__)
    if isinstance(loader.dataset, IterableDataset):
        return ITERABLE
    sampler = loader.sampler
    shuffles = isinstance(sampler, RandomSampler) or (isinstance(sampler, DistributedSampler) and bool(sampler.shuffle))
    return "" if shuffles else UNSHUFFLED
