"""The final parameters on their way to the control plane."""

import io
import threading

import numpy as np
import pytest

from tests.workers.agent.test_links import quick
from tests.workers.agent.values import KEY, process_order
from tests.workers.agent.web import web
from workers.addresses import control_plane
from workers.upload import UploadError, upload_model

ARRAYS = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "file": np.float32(2.5) * np.ones(1, np.float32)}


def test_the_model_arrives_as_arrays_without_pickle() -> None:
    with web((200, {})) as served:
        upload_model(control_plane(served.url), process_order(), ARRAYS, stopping=threading.Event())
    [(method, path, headers, body)] = served.requests
    assert (method, path) == ("PUT", "/api/v1/jobs/7/model")
    assert headers["Authorization"] == f"Process worker:0:w0.0.1:{KEY}"
    assert int(headers["Content-Length"]) == len(body)
    with np.load(io.BytesIO(body), allow_pickle=False) as loaded:
        assert {name: loaded[name].tolist() for name in loaded} == {
            "weight": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
            "file": [2.5],
        }


def test_a_control_plane_in_trouble_is_waited_for() -> None:
    with web((503, {}), (500, {}), (204, b"")) as served:
        plane = control_plane(served.url)
        upload_model(plane, process_order(), ARRAYS, stopping=threading.Event(), backoff=quick())
    assert len(served.requests) == 3
    assert len({body for *_, body in served.requests}) == 1


def test_a_refused_model_is_an_error_that_reports_why() -> None:
    with web((413, {"detail": "over 4 GiB"})) as served, pytest.raises(UploadError, match=r"job 7: .*over 4 GiB"):
        upload_model(control_plane(served.url), process_order(), ARRAYS, stopping=threading.Event())
    assert len(served.requests) == 1


def test_a_process_that_is_to_end_gives_up() -> None:
    stopping = threading.Event()
    stopping.set()
    with web((503, {})) as served, pytest.raises(UploadError, match="asked to end"):
        upload_model(control_plane(served.url), process_order(), ARRAYS, stopping=stopping)
