"""Checkpoints of libraries, in the adapters' environment: ``adapter_checkpoints.py accelerate|lightning|trainer``
prints what was found as JSON.
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


BEST = {"accelerate": best_of_accelerate, "lightning": best_of_lightning}


def best(way: str) -> Any:
    """The difference between saved and loaded weights, the position at the end, and what was logged of it."""
    kept = Kept()
    pacer, _ = paced(0, 1, {0: shared(1, 4)})
    with tempfile.TemporaryDirectory() as folder:
        apart = BEST[way](pacer, folder)
    return [apart, pacer.iteration, [sentence for sentence in kept.sentences if "checkpoint" in sentence]]


class Net(nn.Module):
    """Its random state matters, as that of a transformer does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        return {"loss": (self.layers(x) - labels).square().mean()}


def by_trainer(folder: str, *, ends: int, resume: bool = False, loses: bool = False) -> tuple[Any, list[int]]:
    """The trainer after step ``ends``, and the samples of each step; ``loses``: its checkpoint has no position."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from paceline.adapters.transformers import POSITION
    from paceline.adapters.transformers import paced as governed

    class End(TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            if loses:
                del state.stateful_callbacks[POSITION]
            control.should_save = control.should_training_stop = state.global_step == ends

    taken: list[int] = []

    def collate(rows: list[Any]) -> Any:
        taken.extend(int(row["x"] * 20) for row in rows)
        return torch.utils.data.default_collate(rows)

    arguments = TrainingArguments(
        output_dir=folder, num_train_epochs=2, per_device_train_batch_size=2, gradient_accumulation_steps=2, seed=3,
        use_cpu=True, report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    rows = [{"x": torch.tensor([k / 20]), "labels": torch.tensor([1.0])} for k in range(20)]
    torch.manual_seed(1)
    # With a restart, the job is already further than the checkpoint.
    pacer, _ = paced(0, 1, {0: shared(1, 4, share_from=9 if resume else 0)})
    trainer = governed(Trainer(Net(), arguments, train_dataset=rows, data_collator=collate), pacer)
    trainer.add_callback(End())
    trainer.train(resume_from_checkpoint=resume or None)
    return trainer, taken


def resumed() -> Any:
    """Of a run that continues in the middle of its second pass: the difference to a run in one piece in weights and in
    epochs; the samples that both parts took in that pass; and what was logged of a checkpoint without a position.
    """
    with tempfile.TemporaryDirectory() as folder:
        whole, samples = by_trainer(folder, ends=10)
    with tempfile.TemporaryDirectory() as folder:
        _, before = by_trainer(folder, ends=7)
        second, behind = by_trainer(folder, ends=10, resume=True)
    kept = Kept()
    with tempfile.TemporaryDirectory() as folder:
        by_trainer(folder, ends=7, loses=True)
        by_trainer(folder, ends=10, resume=True)
    weights = zip(whole.model.parameters(), second.model.parameters(), strict=True)
    apart = max(float((one - other).detach().abs().max()) for one, other in weights)
    return [apart, whole.state.epoch - second.state.epoch, samples[20:], before[20:] + behind, kept.sentences]


def main(way: str) -> None:
    """Print what was found."""
    sys.stdout.write("\n" + json.dumps(resumed() if way == "trainer" else best(way)))


if __name__ == "__main__":
    main(sys.argv[1])
