"""Handwritten digits, trained by DistributedDataParallel on the ranks that a launcher starts."""

import argparse
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import paceline

BATCH, ACCUMULATE = 64, 2


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,437 images to train on, 360 to test with."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    train, test = train_test_split(range(len(images)), test_size=360, random_state=7, stratify=labels)
    labels = torch.tensor(labels)
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def network() -> nn.Module:
    """A small convolutional network with batch norm."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(128, 10)),
    )


@torch.no_grad()
def accuracy(model: nn.Module, test: TensorDataset, device: torch.device) -> float:
    """The fraction of test images that the model classifies correctly."""
    images, labels = test.tensors
    model.eval()
    right = model(images.to(device)).argmax(1).eq(labels.to(device)).float().mean().item()
    model.train()
    return right


def main() -> None:
    """Train, and print loss, accuracy and speed after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=25)
    options = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, has_gpu = dist.get_rank(), torch.cuda.is_available()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if has_gpu else torch.device("cpu")
    pacer = paceline.attach()
    torch.manual_seed(7)
    train, test = digits()
    sampler = DistributedSampler(train, seed=7)
    loader = DataLoader(train, batch_size=BATCH, sampler=sampler, num_workers=2, persistent_workers=True)
    loader = pacer.loader(loader, seed=7, accumulate=ACCUMULATE)
    model = pacer.watch(DistributedDataParallel(network().to(device)))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * len(loader) // ACCUMULATE)
    scaler = torch.amp.GradScaler(device.type, enabled=has_gpu)

    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        began, iterations = time.perf_counter(), 0
        for number, (images, labels) in enumerate(loader, start=1):
            steps = number % ACCUMULATE == 0 or number == len(loader)
            with nullcontext() if steps else model.no_sync():
                with torch.autocast(device.type, enabled=has_gpu):
                    loss = criterion(model(images.to(device)), labels.to(device))
                scaler.scale(loss / ACCUMULATE).backward()
            if steps:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                schedule.step()
                iterations += 1
            pacer.step(loss)
        if rank == 0:
            seconds = (time.perf_counter() - began) / iterations
            right = accuracy(model.module, test, device)
            print(
                f"epoch {epoch + 1}: loss {loss.item():.3f}, accuracy {right:.4f}, {seconds:.4f} s/iteration",
                flush=True,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
