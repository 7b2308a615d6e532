"""Flower's FedAvg, simulated on this machine: ``flower_fedavg.py STEPS``, of each client and round."""

import itertools
import sys
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.utils.data import DataLoader, Subset

from benchmarks.peers.machine import emulate, score
from benchmarks.peers.task import BATCH, EPOCHS, WORLD, criterion, digits, network, sgd

client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """A round of one client: so many steps on its own part of the samples."""
    client = int(context.node_config["partition-id"])
    emulate(client)
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = sgd(model)
    samples, _ = digits()
    loader = DataLoader(Subset(samples, range(client, len(samples), WORLD)), batch_size=BATCH, shuffle=True)
    passes = itertools.chain.from_iterable(itertools.repeat(loader))
    for images, labels in itertools.islice(passes, int(message.content["config"]["steps"])):
        optimizer.zero_grad()
        criterion(model(images), labels).backward()
        optimizer.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": 1})}
    return Message(content=RecordDict(content), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Rounds, each of which is scored."""
    model, (_, test) = network(), digits()

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": score(model, test) if number else 0.0})

    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=WORLD, min_available_nodes=WORLD)
    steps: dict[str, Any] = {"steps": int(sys.argv[1])}
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model.state_dict()),
        num_rounds=EPOCHS,
        train_config=ConfigRecord(steps),
        evaluate_fn=evaluate,
    )


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": WORLD}}
    run_simulation(server_app, client_app, num_supernodes=WORLD, backend_config=resources)
