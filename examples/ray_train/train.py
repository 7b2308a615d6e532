"""A Ray Train script with TorchTrainer: `python train.py`."""

import tempfile

import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train_loop_per_worker(config: dict[str, float]) -> None:
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    model = prepare_model(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    loader = prepare_data_loader(DataLoader(TensorDataset(images[:1536], labels[:1536]), batch_size=32, shuffle=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    for epoch in range(4):
        if ray.train.get_context().get_world_size() > 1 and hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(images[1536:]).argmax(1) == labels[1536:]).float().mean()
    ray.train.report({"accuracy": right.item()})
    if ray.train.get_context().get_world_rank() == 0:
        print(f"accuracy {right.item():.3f}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            train_loop_per_worker,
            train_loop_config={"lr": 3e-3},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder),
        )
        trainer.fit()


if __name__ == "__main__":
    main()
