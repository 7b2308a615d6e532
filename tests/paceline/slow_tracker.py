"""A script of three iterations whose MLflow server, in the same process, does not answer before it is told to.

In the adapters' environment: ``slow_tracker.py returns`` or ``slow_tracker.py stays`` prints how many iterations ended
while the server was silent, how many the server received, and whether their run was ended.
"""

import http.server
import json
import os
import sys
import threading

import torch

import paceline
from paceline import pacer as pacing
from paceline.variables import MLFLOW

ITERATIONS = 3

go = threading.Event()
received: list[tuple[str, dict]] = []

ANSWERS = {
    "experiments/get-by-name": {"experiment": {"experiment_id": "1", "name": "paceline"}},
    "runs/create": {"run": {"info": {"run_id": "r", "run_uuid": "r", "experiment_id": "1"}, "data": {}}},
    "runs/update": {"run_info": {"run_id": "r", "run_uuid": "r", "experiment_id": "1"}},
}


class Server(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        go.wait(120)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        name = self.path.partition("?")[0].rpartition("/mlflow/")[2]
        received.append((name, json.loads(body) if body else {}))
        answer = json.dumps(ANSWERS.get(name, {})).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815


def main(course: str) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ[MLFLOW] = f"http://127.0.0.1:{server.server_port}"
    attached = paceline.attach()
    for _ in attached.loader(torch.utils.data.TensorDataset(torch.zeros(ITERATIONS)), batch_size=1):
        attached.step(0.5)
    silent = not go.is_set() and not received
    if course == "returns":
        go.set()
        pacing.FAREWELL_S = 60.0
    else:
        pacing.FAREWELL_S = 0.5
    attached.close()
    metrics = [metric for name, body in received if name == "runs/log-batch" for metric in body["metrics"]]
    losses = [metric["step"] for metric in metrics if metric["key"] == "paceline/loss"]
    ended = [body.get("status") for name, body in received if name == "runs/update"]
    sys.stdout.write(json.dumps([attached.iteration * silent, losses, ended]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
