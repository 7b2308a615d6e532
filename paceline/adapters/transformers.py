"""Hugging Face ``Trainer``: one line before ``train()``.

    from paceline.adapters.transformers import paced

    trainer = paced(Trainer(...))
    trainer.train()

If a model's loss is divided by the number of items on all ranks, as in transformers, that weighting is kept; the
gradients of other models are weighted by samples. A checkpoint includes the position in the data. Without a control
plane the trainer is returned unchanged.
"""

import logging
from typing import Any, Final, TypeVar, cast

from transformers import Trainer, TrainerCallback

from paceline.adapters.accelerate import prepared
from paceline.adapters.loaders import is_for_training
from paceline.adapters.position import Position
from paceline.attaching import attach
from paceline.errors import Stopped
from paceline.loading import Loader
from paceline.pacer import Pacer

log = logging.getLogger("paceline")

AnyTrainer = TypeVar("AnyTrainer", bound=Trainer)

POSITION: Final = "paceline"
"""The position's name among the states of callbacks in ``trainer_state.json``."""


def paced(trainer: AnyTrainer, pacer: Pacer | None = None) -> AnyTrainer:
    """Return ``trainer`` with balanced batch sizes. ``pacer``: by default that of ``paceline.attach()``."""
    accelerator = trainer.accelerator
    pacer = pacer or attach(rank=accelerator.process_index, world=accelerator.num_processes)
    if pacer.active:
        _Paced(trainer, pacer).take_over()
    return trainer


class _Paced:
    """Wraps a trainer's accelerator."""

    def __init__(self, trainer: Trainer, pacer: Pacer) -> None:
        self.trainer, self.pacer, self.accelerator = trainer, pacer, trainer.accelerator
        self.prepare_data_loader = self.accelerator.prepare_data_loader
        self.prepare_model = self.accelerator.prepare_model
        self.training_step = trainer.training_step
        self.count_items = trainer._get_num_items_in_batch
        self.load_rng_state = trainer._load_rng_state
        self.position: Position | None = None
        """None: shares do not decide the batches."""
        self.checkpoint: str | None = None
        """Its random state is loaded again once the first batch was taken."""
        self.loss: Any = None
        counts_items = bool(trainer.model_accepts_loss_kwargs or trainer.compute_loss_func is not None)
        self.weigh = not counts_items
        if counts_items:
            # Then the loss is a sum over the items of all ranks divided by their number, so it is weighted already.
            trainer.args.average_tokens_across_devices = True

    def take_over(self) -> None:
        self.accelerator.prepare_data_loader = self.paced_data_loader
        self.accelerator.prepare_model = self.watched_model
        self.trainer.training_step = self.noted_training_step
        self.trainer._get_num_items_in_batch = self.timed_count
        self.trainer._load_rng_state = self.noted_rng_state
        self.trainer.add_callback(_Steps(self))

    def paced_data_loader(self, data_loader: Any, *args: Any, **named: Any) -> Any:
        if not is_for_training(data_loader, self.pacer):
            return self.prepare_data_loader(data_loader, *args, **named)
        accumulate = self.trainer.args.gradient_accumulation_steps
        # Where the loader begins is a part of the checkpoint: the trainer need not skip batches.
        self.trainer.args.ignore_data_skip, self.position = True, Position(self.pacer)
        # All batches between two optimizer steps are taken before the first one is computed.
        loader = self.pacer.loader(data_loader, seed=self.trainer.args.seed, accumulate=accumulate)
        return prepared(self.accelerator, cast(Loader, loader))

    def watched_model(self, model: Any, *args: Any, **named: Any) -> Any:
        made = self.prepare_model(model, *args, **named)
        evaluates = named.get("evaluation_mode", len(args) > 1 and args[1])
        return made if evaluates else self.pacer.watch(made, weigh=self.weigh)

    def noted_training_step(self, *args: Any, **named: Any) -> Any:
        loss = self.loss = self.training_step(*args, **named)
        return loss

    def noted_rng_state(self, checkpoint: str | None) -> None:
        self.checkpoint = checkpoint
        self.load_rng_state(checkpoint)

    def first_batch_taken(self) -> None:
        """As in the trainer when it skips batches: an iterator takes numbers from the random state."""
        if self.checkpoint is not None:
            self.load_rng_state(self.checkpoint)
            self.checkpoint = None

    def timed_count(self, *args: Any, **named: Any) -> Any:
        end = self.pacer.time_collective()
        try:
            return self.count_items(*args, **named)
        finally:
            end()

    def step(self) -> None:
        loss, self.loss = self.loss, None
        self.pacer.step(None if loss is None else loss.detach() * self.trainer.args.gradient_accumulation_steps)


class _Steps(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Ends iterations, and keeps the position in the trainer's state. If the job is stopped, it ends training as a
    callback would, so that the trainer saves.
    """

    def __init__(self, paced: _Paced) -> None:
        self.paced = paced
        self.skipped = 0.0
        """The part of the pass before the checkpoint, which the trainer does not count."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        position = state.stateful_callbacks.get(POSITION)
        if self.paced.position is None or not state.global_step:
            return
        if position is not None:
            self.paced.position.load_state_dict(position)
            self.skipped = state.epoch % 1 if position["begin"] else 0.0
        elif not self.paced.pacer.rank:
            log.warning(
                "paceline: the checkpoint of step %d was saved without Paceline and has no position in the data:"
                " training continues at the beginning of a pass",
                state.global_step,
            )

    def on_step_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        self.paced.first_batch_taken()

    def on_substep_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        self.paced.step()

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> Any:
        state.epoch += self.skipped
        try:
            self.paced.step()
        except Stopped:
            control.should_training_stop = True
        if self.paced.position is not None:
            state.stateful_callbacks[POSITION] = self.paced.position.state_dict()
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        self.skipped = 0.0
