"""Plain Ray Train with TorchTrainer."""

import tempfile
from typing import Any

import ray
import ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader

from benchmarks.peers.machine import emulate, score
from benchmarks.peers.task import BATCH, EPOCHS, SCORE_EVERY, WORLD, criterion, digits, network, sgd


def train_loop_per_worker(config: dict[str, Any]) -> None:
    """Train until the launcher ends it."""
    rank = ray.train.get_context().get_world_rank()
    emulate(rank)
    train, test = digits()
    loader = prepare_data_loader(DataLoader(train, batch_size=BATCH, shuffle=True))
    model = prepare_model(network())
    optimizer = sgd(model)
    iterations = 0
    for epoch in range(EPOCHS):
        loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            criterion(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            iterations += 1
            if rank == 0 and iterations % SCORE_EVERY == 0:
                score(model.module, test)


def main() -> None:
    """Start a local cluster with one worker per emulated machine."""
    ray.init(num_cpus=WORLD, include_dashboard=False)
    with tempfile.TemporaryDirectory() as folder:
        TorchTrainer(
            train_loop_per_worker,
            train_loop_config={},
            scaling_config=ScalingConfig(num_workers=WORLD),
            run_config=RunConfig(storage_path=folder),
        ).fit()


if __name__ == "__main__":
    main()
