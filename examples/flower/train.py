"""A Flower federation, simulated on this machine: `python train.py`."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLIENTS, ROUNDS, LOCAL_STEPS = 2, 6, 20
client_app, server_app = ClientApp(), ServerApp()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def samples(first: int, last: int, step: int = 1) -> TensorDataset:
    digits = load_digits()
    images, labels = digits.data[first:last:step] / 16, digits.target[first:last:step]
    return TensorDataset(torch.tensor(images, dtype=torch.float32), torch.tensor(labels))


@client_app.train()
def train(message: Message, context: Context) -> Message:
    net = model()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    batch_size = int(message.content["config"]["batch-size"])
    own = samples(int(context.node_config["partition-id"]), 1536, CLIENTS)
    seen = 0
    while seen < LOCAL_STEPS * batch_size:
        for inputs, targets in DataLoader(own, batch_size=batch_size, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
            seen += len(targets)
            if seen >= LOCAL_STEPS * batch_size:
                break
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": seen})}
    return Message(content=RecordDict(content), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    arrays = ArrayRecord(model().state_dict())
    result = strategy.start(
        grid=grid, initial_arrays=arrays, num_rounds=ROUNDS, train_config=ConfigRecord({"batch-size": 32})
    )
    net = model()
    net.load_state_dict(result.arrays.to_torch_state_dict())
    images, labels = samples(1536, 1797).tensors
    print(f"accuracy {(net(images).argmax(1) == labels).float().mean().item():.3f}", flush=True)


if __name__ == "__main__":
    run_simulation(server_app, client_app, num_supernodes=CLIENTS)
