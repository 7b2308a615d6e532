"""Lightning: a callback that balances the ranks' batch sizes.

    from paceline.adapters.lightning import PacelineCallback

    trainer = L.Trainer(..., callbacks=[PacelineCallback()])

Data loaders that shuffle yield batches of the rank's share, and each optimizer step ends an iteration. Loaders for
evaluation are divided as in Lightning. A checkpoint includes the position in the data. Without a control plane it does
nothing.
"""

from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from paceline.adapters.loaders import is_for_training
from paceline.adapters.position import Position
from paceline.attaching import attach
from paceline.errors import Stopped
from paceline.pacer import Pacer


class PacelineCallback(Callback):  # type: ignore[misc,unused-ignore]
    """Balances the ranks of ``Trainer.fit``. ``pacer``: by default that of ``paceline.attach()``."""

    def __init__(self, pacer: Pacer | None = None, seed: int = 0) -> None:
        self.pacer, self.seed = pacer, seed

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Attach before data loaders are created."""
        if stage != "fit":
            return
        if not pl_module.automatic_optimization:
            raise MisconfigurationException(
                "PacelineCallback: this module uses manual optimization; call attach(), watch, loader and step in it"
            )
        self.pacer = self.pacer or attach(rank=trainer.global_rank, world=trainer.world_size)
        if not self.pacer.active:
            return
        strategy, pacer = trainer.strategy, self.pacer
        process = strategy.process_dataloader

        def paced(loader: Any) -> Any:
            if is_for_training(loader, pacer):
                loader = pacer.loader(loader, seed=self.seed, accumulate=trainer.accumulate_grad_batches)
            return process(loader)

        strategy.process_dataloader = paced

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Watch the module, which is wrapped at this point."""
        if self.pacer is not None and self.pacer.active:
            self.pacer.watch(trainer.strategy.model)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End the iteration if the optimizer has made a step."""
        if self.pacer is None or not self.pacer.active:
            return
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        try:
            self.pacer.step(loss)
        except Stopped:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """The position in the data."""
        return self.pacer.state_dict() if self.pacer is not None and self.pacer.active else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from the saved position."""
        if state_dict and self.pacer is not None and self.pacer.active:
            Position(self.pacer).load_state_dict(state_dict)
