"""The one-file report: whole, self-contained, and safe whatever is in the spec."""

import json
import re
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from controlplane.telemetry.logged import record_logged
from frontend.figures import FIGURES
from frontend.report import LIVE, render_report
from tests.frontend import factories
from tests.telemetry.test_logged import report

pytestmark = pytest.mark.django_db


def outside(document: str) -> list[str]:
    """Whatever an element of the document would fetch."""
    without_scripts = re.sub(r"<script[^>]*>.*?</script>", "", document, flags=re.DOTALL)
    return re.findall(r"""(?:src|href)=["'](?!#|/jobs/)[^"']*|url\((?!#)[^)]*\)|@import[^;]*""", without_scripts)


def test_a_report_holds_all_figures_and_fetches_nothing() -> None:
    job = factories.played_job()
    record_logged(job.pk, [report(k, lr=0.1 / (k + 1)) for k in range(60)])
    document = render_report(job)
    bodies = dict(re.findall(r'<script type="application/json" id="figure-([\w-]+)">(.*?)</script>', document))
    assert {name: bool(json.loads(body)["data"]) for name, body in bodies.items()} == dict.fromkeys(
        set(FIGURES) - LIVE, True
    )
    assert outside(document) == []


def test_a_report_reports_what_was_found_and_decided_and_when() -> None:
    document = render_report(factories.demo_job())
    for words in ("Balanced: all workers finish together", factories.flag_sentence(), "2026-03-02 09:30:03 UTC"):
        assert words in document
    assert "data-ago" not in re.sub(r"<script[^>]*>.*?</script>", "", document, flags=re.DOTALL)


def test_nothing_in_a_job_becomes_part_of_the_document() -> None:
    wicked = "</script><script>alert(1)</script>"
    job = factories.make_job(name=wicked, spec=factories.spec() | {"name": wicked})
    factories.make_reports(job, [factories.Pace(shares=factories.EVEN)] * 3)
    assert "<script>alert(1)" not in render_report(job)


def test_the_command_writes_the_file(tmp_path: Path) -> None:
    job = factories.demo_job()
    target = tmp_path / "job.html"
    call_command("report", job.pk, output=str(target))
    assert target.read_text().startswith("<!doctype html>")


def test_the_command_reports_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="job 99 does not exist"):
        call_command("report", 99, output="-")
    job = factories.demo_job()
    with pytest.raises(CommandError, match=r"cannot write .*: No such file or directory; name a file in an exis"):
        call_command("report", job.pk, output=str(tmp_path / "nowhere" / "job.html"))
