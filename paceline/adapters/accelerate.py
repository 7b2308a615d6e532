"""Hugging Face Accelerate: an ``Accelerator`` whose ``prepare`` balances the ranks.

    from paceline.adapters.accelerate import Accelerator        # instead of: from accelerate import Accelerator

Data loaders that shuffle yield batches of the rank's share, the model's gradients are weighted by samples, and each
step of the optimizer that was prepared last ends an iteration. Loaders for evaluation are not changed. ``save_state``
includes the position in the data. Without a control plane everything behaves as in Accelerate.
"""

from collections.abc import Iterator
from typing import Any, cast

import accelerate
from accelerate.data_loader import DataLoaderStateMixin
from accelerate.utils import send_to_device

from paceline.adapters.loaders import is_for_training
from paceline.adapters.position import Position
from paceline.attaching import attach
from paceline.errors import CannotAttach
from paceline.loading import Loader
from paceline.pacer import Pacer


class Accelerator(accelerate.Accelerator):
    """An ``accelerate.Accelerator`` with balanced batch sizes. ``pacer``: by default that of ``paceline.attach()``."""

    def __init__(self, *args: Any, pacer: Pacer | None = None, seed: int = 0, **named: Any) -> None:
        super().__init__(*args, **named)
        self.pacer = pacer or attach(rank=self.process_index, world=self.num_processes)
        self._seed = seed
        self._loss: Any = None
        self._last: Any = None
        """The optimizer that was prepared last."""
        if self.pacer.active:
            self.register_for_checkpointing(Position(self.pacer))

    def prepare_data_loader(self, data_loader: Any, *args: Any, **named: Any) -> Any:
        """As in Accelerate; a loader for training follows the shares."""
        if not (self.pacer.active and is_for_training(data_loader, self.pacer)):
            return super().prepare_data_loader(data_loader, *args, **named)
        paced = self.pacer.loader(data_loader, seed=self._seed, accumulate=self.gradient_accumulation_steps)
        return prepared(self, cast(Loader, paced))

    def prepare_model(self, model: Any, device_placement: bool | None = None, evaluation_mode: bool = False) -> Any:
        """As in Accelerate; also watches a model that is trained."""
        made = super().prepare_model(model, device_placement, evaluation_mode)
        return self.pacer.watch(made) if self.pacer.active and not evaluation_mode else made

    def prepare_optimizer(self, optimizer: Any, device_placement: bool | None = None) -> Any:
        """As in Accelerate; each of its steps ends an iteration."""
        made = super().prepare_optimizer(optimizer, device_placement)
        if self.pacer.active:
            make_step, self._last = made.step, made

            def step(closure: Any = None) -> None:
                make_step(closure)
                if made is self._last:
                    loss, self._loss = self._loss, None
                    self.pacer.step(loss)

            made.step = step
        return made

    def backward(self, loss: Any, **named: Any) -> None:
        """As in Accelerate; also records the loss for the job's page."""
        super().backward(loss, **named)
        self._loss = loss.detach()

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> Any:
        """Not supported for a loader that follows the shares: it resumes at the position that
        ``load_state`` restored.
        """
        if isinstance(dataloader, PreparedLoader):
            raise CannotAttach(
                "skip_first_batches(): a number of batches has no fixed meaning when shares change; omit it,"
                " load_state() has already restored the position"
            )
        return super().skip_first_batches(dataloader, num_batches)


def prepared(accelerator: Any, loader: Loader) -> "PreparedLoader":
    """The loader as ``accelerator`` would have prepared it."""
    made = PreparedLoader(loader, accelerator.device if accelerator.device_placement else None)
    accelerator._dataloaders.append(made)
    return made


class PreparedLoader(DataLoaderStateMixin):  # type: ignore[misc,unused-ignore]
    """Batches on the device; notifies Accelerate when the last batch of a pass is being processed."""

    _is_accelerate_prepared = True
    use_stateful_dataloader = False
    sampler = None

    def __init__(self, loader: Loader, device: Any) -> None:
        super().__init__()
        self.loader, self.device = loader, device
        self.dataset, self.batch_sampler = loader.dataset, loader.batches
        self.gradient_state = accelerate.state.GradientState()
        self._drop_last = loader.plan.drop_last

    @property
    def batch_size(self) -> int:
        """Batch size of one rank with equal shares."""
        return self.loader.plan.batch_size

    @property
    def total_batch_size(self) -> int:
        """Batch size of all ranks."""
        return self.loader.plan.batch_size * self.loader.pacer.world

    @property
    def total_dataset_length(self) -> int:
        """Number of samples."""
        return self.loader.samples

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: each pass has its own permutation."""

    def __len__(self) -> int:
        """Number of batches in a whole pass."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        self.begin()
        batches = iter(self.loader)
        left = self.loader.batches.left
        for at, batch in enumerate(batches):
            self.end_of_dataloader = at + 1 == left
            yield batch if self.device is None else send_to_device(batch, self.device)
        self.end()
