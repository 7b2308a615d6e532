"""The glossary has every term that a template names, and pages link to its entries."""

import re
from pathlib import Path

from django.test import Client

from controlplane.policies.registry import catalogue
from frontend.glossary import TERMS, by_name
from tests.frontend import factories

TEMPLATES = Path(__file__).parents[2] / "frontend" / "templates"


def test_terms_are_in_order_and_each_has_an_anchor_of_its_own() -> None:
    names = [term.name for term in TERMS]
    assert names == sorted(names)
    anchors = [term.anchor for term in by_name().values()]
    assert len(set(anchors)) == len(anchors) == len(TERMS) + len(catalogue())


def test_every_term_that_a_template_names_is_in_the_glossary() -> None:
    named = {name for path in TEMPLATES.rglob("*.html") for name in re.findall(r'\{% word "([^"]+)"', path.read_text())}
    assert named
    assert named <= by_name().keys()


def test_terms_of_a_page_lead_to_an_entry_of_the_glossary(viewer: Client) -> None:
    job = factories.demo_job()
    glossary = viewer.get("/glossary/").content.decode()
    entries = set(re.findall(r'<div id="([\w-]+)"><dt>', glossary))
    for path in ("/", "/jobs/", f"/jobs/{job.pk}/", f"/jobs/{job.pk}/?tab=waiting"):
        linked = set(re.findall(r'href="/glossary/#([\w-]+)"', viewer.get(path).content.decode()))
        assert linked, path
        assert linked <= entries
    assert {"lost-time", "staleness", "lb-bsp-cpu"} <= entries


def test_no_term_is_a_link_within_a_link(viewer: Client) -> None:
    job = factories.demo_job()
    for path in ("/", "/jobs/", "/workers/", "/waiting/", f"/jobs/{job.pk}/", f"/jobs/{job.pk}/?tab=whatif"):
        inside = re.findall(r"<a\b[^>]*>(?:(?!</a>).)*?<a\b", viewer.get(path).content.decode(), re.DOTALL)
        assert inside == []
