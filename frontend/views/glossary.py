"""The glossary page."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.jobs.roles import Role
from frontend.glossary import QUESTIONS, TERMS, policies
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def glossary_page(request: HttpRequest) -> HttpResponse:
    """Every term and every policy, each with an anchor."""
    groups = [("Terms", "", TERMS)]
    groups += [(f"Policies: {question}", QUESTIONS[question], terms) for question, terms in policies().items()]
    return render(request, "pages/glossary.html", rights(request) | {"groups": groups})
