"""The weights at the end: trained by a library on ranks with uneven shares, and on the same samples by one loop.

In the adapters' environment: ``adapter_weights.py accelerate|lightning|trainer|trainer-items`` prints the largest
difference, and the shares of the ranks.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from paceline.samples import Order
from tests.paceline.ranks import paced, run_ranks, shared

WORLD, BATCH, ACCUMULATE, SAMPLES, PASSES, SEED = 2, 8, 2, 60, 2, 3
GLOBAL_BATCH = WORLD * BATCH * ACCUMULATE
SCHEDULE = {0: shared(1, 20, 12), 2: shared(2, 28, 4)}
"""The last iteration of a pass has 28 samples."""


def data() -> TensorDataset:
    torch.manual_seed(1)
    return TensorDataset(torch.randn(SAMPLES, 6, dtype=torch.float64), torch.randint(3, (SAMPLES,)))


class Net(nn.Module):
    """A classifier; with labels it returns its loss, as models for the Trainer do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        found = self.layers(x)
        return found if labels is None else {"loss": nn.functional.cross_entropy(found, labels), "logits": found}


class ItemsNet(Net):
    """Its loss is a sum that is divided by the number of items of all ranks."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None, num_items_in_batch: Any = None) -> Any:
        found = self.layers(x)
        if labels is None:
            return found
        count = len(labels) if num_items_in_batch is None else num_items_in_batch
        return {"loss": nn.functional.cross_entropy(found, labels, reduction="sum") / count, "logits": found}


def made(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def flat(model: nn.Module) -> list[float]:
    return [float(number) for parameter in model.parameters() for number in parameter.detach().flatten()]


def reference() -> list[float]:
    """One process on all samples of each iteration."""
    model, (x, labels) = Net(), data().tensors
    optimizer = made(model)
    for taken in batches():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[taken]), labels[taken]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return flat(model)


def batches() -> Iterator[Any]:
    for number in range(PASSES):
        order = Order(seed=SEED, samples=SAMPLES)._permute(number)
        for begin in range(0, SAMPLES, GLOBAL_BATCH):
            yield order[begin : begin + GLOBAL_BATCH].tolist()


def by_accelerate(pacer: Any) -> list[float]:
    from paceline.adapters.accelerate import Accelerator

    accelerator = Accelerator(cpu=True, pacer=pacer, seed=SEED, gradient_accumulation_steps=ACCUMULATE)
    net = Net()
    loader = DataLoader(data(), batch_size=BATCH, shuffle=True)
    model, optimizer, loader = accelerator.prepare(net, made(net), loader)
    for _ in range(PASSES):
        for x, labels in loader:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.cross_entropy(model(x), labels))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    return flat(net)


def by_lightning(pacer: Any) -> list[float]:
    import lightning

    from paceline.adapters.lightning import PacelineCallback

    class Module(lightning.LightningModule):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, labels = batch
            return nn.functional.cross_entropy(self.net(x), labels)

        def configure_optimizers(self) -> Any:
            return made(self)

    module = Module()
    lightning.Trainer(
        accelerator="cpu", devices=WORLD, strategy="ddp", max_epochs=PASSES, gradient_clip_val=1.0, logger=False,
        accumulate_grad_batches=ACCUMULATE, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[PacelineCallback(pacer, seed=SEED)],
    ).fit(module, DataLoader(data(), batch_size=BATCH, shuffle=True))  # fmt: skip
    return flat(module)


def by_trainer(pacer: Any, net: Net | None = None) -> list[float]:
    from transformers import Trainer, TrainingArguments

    from paceline.adapters.transformers import paced as governed

    net = net or Net()
    optimizer = made(net)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, num_train_epochs=PASSES, per_device_train_batch_size=BATCH, use_cpu=True, seed=SEED,
            gradient_accumulation_steps=ACCUMULATE, max_grad_norm=1.0, report_to="none", save_strategy="no",
            logging_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        x, labels = data().tensors
        rows = [{"x": x[place], "labels": labels[place]} for place in range(SAMPLES)]
        constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
        governed(Trainer(net, arguments, train_dataset=rows, optimizers=(optimizer, constant)), pacer).train()
    return flat(net)


WAYS = {
    "accelerate": by_accelerate,
    "lightning": by_lightning,
    "trainer": by_trainer,
    "trainer-items": lambda pacer: by_trainer(pacer, ItemsNet()),
}


def trained(rank: int, world: int, way: str) -> tuple[list[float], list[list[int]]]:
    as_torchrun = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0}
    os.environ |= {name: str(number) for name, number in as_torchrun.items()} | {"TORCHELASTIC_RUN_ID": "test"}
    pacer, script = paced(rank, world, SCHEDULE)
    weights = WAYS[way](pacer)
    pacer.close()
    return weights, [[each.iteration, each.samples] for each in script.said if hasattr(each, "samples")]


def main(way: str) -> None:
    """Train both ways, and print how far apart they are."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    ranks = run_ranks(trained, WORLD, way, seconds=110.0)
    expected = reference()
    apart = max(abs(a - b) for weights, _ in ranks for a, b in zip(weights, expected, strict=True))
    sys.stdout.write("\n" + json.dumps([apart, [samples for _, samples in ranks]]))


if __name__ == "__main__":
    main(sys.argv[1])
