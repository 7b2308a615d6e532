"""DistributedDataParallel with Paceline attached: ``ddp.py``, and five lines."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import paceline
from benchmarks.peers.machine import emulate, score
from benchmarks.peers.task import BATCH, EPOCHS, SCORE_EVERY, SEED, criterion, digits, network, sgd


def main() -> None:
    """Train until the launcher ends it."""
    dist.init_process_group("gloo")
    emulate(dist.get_rank())
    pacer = paceline.attach()
    train, test = digits()
    sampler: DistributedSampler[int] = DistributedSampler(train, seed=SEED)
    loader = pacer.loader(DataLoader(train, batch_size=BATCH, sampler=sampler), seed=SEED)
    model = pacer.watch(DistributedDataParallel(network()))
    optimizer = sgd(model)
    iterations = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            pacer.step(loss)
            iterations += 1
            if dist.get_rank() == 0 and iterations % SCORE_EVERY == 0:
                score(model.module, test)


if __name__ == "__main__":
    main()
