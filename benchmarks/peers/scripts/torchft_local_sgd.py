"""torchft's LocalSGD: replicas step alone and average their parameters every few steps: ``torchft_local_sgd.py STEPS``.

``REPLICA_GROUP_ID`` says which replica this is, ``TORCHFT_LIGHTHOUSE`` where they meet.
"""

import os
import sys
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.utils.data import DataLoader, DistributedSampler
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import LocalSGD

from benchmarks.peers.machine import emulate, score
from benchmarks.peers.task import BATCH, EPOCHS, SEED, WORLD, criterion, digits, network, sgd


def main() -> None:
    """Train until the launcher ends it."""
    replica, steps = int(os.environ["REPLICA_GROUP_ID"]), int(sys.argv[1])
    emulate(replica)
    train, test = digits()
    sampler: DistributedSampler[int] = DistributedSampler(train, num_replicas=WORLD, rank=replica, seed=SEED)
    loader = DataLoader(train, batch_size=BATCH, sampler=sampler)
    model = network()
    optimizer = sgd(model)

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load(saved: dict[str, Any]) -> None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=60)),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=WORLD,
        use_async_quorum=False,
        init_sync=False,  # all begin with the same values
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        replica_id=f"machine-{replica}",
        hostname="localhost",
    )
    averaged = 0
    with LocalSGD(manager, model, optimizer, sync_every=steps):
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            for images, labels in loader:
                optimizer.zero_grad()
                criterion(model(images), labels).backward()
                optimizer.step()
                if replica == 0 and manager.current_step() > averaged:
                    averaged = manager.current_step()
                    score(model, test)


if __name__ == "__main__":
    main()
