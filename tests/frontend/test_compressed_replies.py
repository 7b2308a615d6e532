"""Pages and figures are compressed for those who accept it, and are then what they were."""

import gzip
import json
import re

import pytest
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.test import Client, RequestFactory

from frontend.compressed_replies import CompressedReplies
from tests.frontend import factories

GZIP = {"Accept-Encoding": "gzip, deflate, br"}
ETAG = {"ETag": '"abc"'}


def reply_to(response: HttpResponseBase, **headers: str) -> HttpResponseBase:
    request = RequestFactory(headers=headers or GZIP).get("/")
    return CompressedReplies(lambda _: response)(request)


def test_a_page_is_smaller_on_the_wire_and_the_same_behind_it(viewer: Client) -> None:
    plain, small = viewer.get("/jobs/"), viewer.get("/jobs/", headers=GZIP)
    assert (plain.headers.get("Content-Encoding"), small.headers["Content-Encoding"]) == (None, "gzip")
    assert len(small.content) == int(small.headers["Content-Length"]) < len(plain.content) / 3
    tokens = re.compile(rb'(name="csrfmiddlewaretoken" value=|X-CSRFToken": )"\w+"')
    assert tokens.sub(b"", gzip.decompress(small.content)) == tokens.sub(b"", plain.content)


def test_a_figure_keeps_its_entity_tag_so_that_a_second_visit_gets_304(viewer: Client) -> None:
    job = factories.demo_job()
    path = f"/api/v1/jobs/{job.pk}/figures/batch-size"
    small = viewer.get(path, headers=GZIP)
    assert small.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in small.headers["Vary"]
    assert json.loads(gzip.decompress(small.content)).keys() == {"data", "layout"}
    again = viewer.get(path, headers=GZIP | {"If-None-Match": small.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "response",
    [
        HttpResponse(b"x" * 5_000, content_type="application/octet-stream"),
        HttpResponse(b"x" * 100, content_type="text/html"),
        HttpResponse(b"x" * 5_000, content_type="text/html", headers={"Content-Encoding": "br"}),
        StreamingHttpResponse([b"x" * 5_000], content_type="application/json"),
    ],
)
def test_streams_small_replies_and_other_kinds_stay_as_they_are(response: HttpResponseBase) -> None:
    before = dict(response.headers)
    assert {**reply_to(response).headers, "Vary": ""} == {**before, "Vary": ""}


def test_two_replies_of_one_page_differ_in_length() -> None:
    """So that a length gives nothing away."""
    page = b"<p>the same page</p>" * 100
    lengths = {len(reply_to(HttpResponse(page)).content) for _ in range(50)}  # type: ignore[attr-defined]
    assert len(lengths) > 1
