"""Checkpoints of libraries, in the adapters' environment: ``adapter_checkpoints.py accelerate|lightning`` prints a fact
as JSON.
"""

import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.paceline.ranks import paced, shared


class Kept(logging.Handler):
    """What Paceline logs."""

    def __init__(self) -> None:
        super().__init__()
        self.sentences: list[str] = []
        logging.getLogger("paceline").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.sentences.append(record.getMessage())


def rows() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.ones(8, 1)), batch_size=4, shuffle=True)


def best_of_accelerate(pacer: Any, folder: str) -> float:
    """The weight that is loaded after training, which was saved in the middle of it."""
    from paceline.adapters.accelerate import Accelerator

    accelerator = Accelerator(cpu=True, pacer=pacer)
    net = nn.Linear(1, 1, bias=False)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), rows())
    saved = 0.0
    for at, (x,) in enumerate(loader):
        accelerator.backward(model(x).mean())
        optimizer.step()
        optimizer.zero_grad()
        if not at:
            accelerator.save_state(folder)
            saved = net.weight.item()
    accelerator.load_state(folder)
    return net.weight.item() - saved


def best_of_lightning(pacer: Any, folder: str) -> float:
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    from paceline.adapters.lightning import PacelineCallback

    class Module(lightning.LightningModule):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(1, 1, bias=False)
            self.saved = self.tested = 0.0

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx:
                self.saved = self.net.weight.item()
            return self.net(batch[0]).mean()

        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.tested = self.net.weight.item()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[PacelineCallback(pacer), ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)],
    )  # fmt: skip
    trainer.fit(module, rows())
    trainer.test(module, rows(), ckpt_path=str(Path(folder, "step=1.ckpt")), verbose=False)
    return module.tested - module.saved


def main(way: str) -> None:
    """Print the difference between saved and loaded weights, the position at the end, and what was logged of it."""
    kept = Kept()
    pacer, _ = paced(0, 1, {0: shared(1, 4)})
    with tempfile.TemporaryDirectory() as folder:
        apart = {"accelerate": best_of_accelerate, "lightning": best_of_lightning}[way](pacer, folder)
    said = [sentence for sentence in kept.sentences if "checkpoint" in sentence]
    sys.stdout.write("\n" + json.dumps([apart, pacer.iteration, said]))


if __name__ == "__main__":
    main(sys.argv[1])
