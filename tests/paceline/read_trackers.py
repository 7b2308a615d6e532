"""Reads back what was forwarded to trackers, by their own libraries; prints how many losses each has."""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

HEADER, BLOCK = 7, 32_768
FULL, LAST = 1, 4


def main(tensorboard: str, mlflow_folder: str, wandb: str) -> None:
    import mlflow
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(tensorboard, size_guidance={"scalars": 0})
    events.Reload()
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{mlflow_folder}/runs.db")
    experiment = client.get_experiment_by_name("paceline")
    (run,) = client.search_runs([experiment.experiment_id])
    losses = client.get_metric_history(run.info.run_id, "paceline/loss")
    (file,) = Path(wandb).rglob("*.wandb")
    found = {
        "tensorboard": len(events.Scalars("paceline/loss")),
        "mlflow": len(losses),
        "wandb": steps(file),
    }
    sys.stdout.write(json.dumps(found) + "\n")


def steps(file: Path) -> int:
    """How many steps an offline run of Weights & Biases has kept."""
    from wandb.proto.wandb_internal_pb2 import Record

    return sum(Record.FromString(data).WhichOneof("record_type") == "history" for data in records(file.read_bytes()))


def records(log: bytes) -> Iterator[bytes]:
    """Those of a LevelDB log behind the file's header: pieces in blocks of 32 KiB, each with its length and kind."""
    at, pieces = HEADER, b""
    while at + HEADER <= len(log):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", log, at)
        pieces += log[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in {FULL, LAST}:
            yield pieces
            pieces = b""


if __name__ == "__main__":
    main(*sys.argv[1:])
