"""Validates query parameters of lists: values that the OpenAPI document does not allow are rejected.

django-filter ignores an empty value and an invalid boolean, and reads 0.5 as the number of a worker. It also ignores
parameters that it does not know, and so does Django REST framework: a misspelled filter would list everything.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final

import django_filters
from django import forms
from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.utils import extend_schema_field
from rest_framework.filters import OrderingFilter
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request

from controlplane.api.problems import FieldError, Problem

MOST: Final = 2**31 - 1
BOOLEANS: Final = ("true", "false")


@extend_schema_field({"type": "integer", "minimum": 0, "maximum": MOST})
class CountFilter(django_filters.NumberFilter):
    """An integer of at least 0."""

    field_class = forms.IntegerField

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"min_value": 0, "max_value": MOST, **options})


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Check that all query parameters are known.

    Raises:
        Problem: naming the unknown ones and those that there are.
    """
    names = sorted(known)
    accepted = f"one of {', '.join(names)}" if names else "no query parameters"
    faults = []
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            faults.append(FieldError(field=name, found=name, expected=f"{accepted}{hint}"))
    if faults:
        sentence = "; ".join(f"there is no query parameter {fault.field!r}: {fault.expected}" for fault in faults)
        raise Problem(400, sentence, errors=faults)


class StrictOrdering(OrderingFilter):
    """``?ordering=-created_at``: fields that cannot be ordered by are refused, not ignored."""

    def get_ordering(self, request: Request, queryset: "QuerySet[Any]", view: Any) -> Any:
        """The fields to order by.

        Raises:
            Problem: naming a field that is not among those of the view.
        """
        known = list(view.ordering_fields)
        for found in request.query_params.getlist(self.ordering_param):
            terms = [term.strip() for term in found.split(",")]
            if any(term.removeprefix("-") not in known for term in terms):
                expected = f"{', '.join(known)}, each with or without -"
                fault = FieldError(field=self.ordering_param, found=found, expected=expected)
                raise Problem(400, f"ordering: expected {expected}", errors=[fault])
        return super().get_ordering(request, queryset, view)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """The parameter's schema, with the accepted fields."""
        parameters: list[dict[str, Any]] = super().get_schema_operation_parameters(view)
        fields = "|".join(view.ordering_fields)
        for each in parameters:
            each["schema"] |= {"pattern": f"^-?({fields})(,-?({fields}))*$"}
        return parameters


class StrictFilters(DjangoFilterBackend):
    """The filters of a view's ``filterset_class``."""

    def filter_queryset(self, request: Request, queryset: "QuerySet[Any]", view: Any) -> Any:
        """The rows that match.

        Raises:
            Problem: for empty parameters and invalid booleans.
        """
        filterset = self.get_filterset_class(view, queryset)
        filters = filterset.base_filters if filterset else {}
        faults = [
            FieldError(field=name, found=found, expected=expected)
            for name, each in filters.items()
            for found in request.query_params.getlist(name)
            if (expected := _expected(each, found))
        ]
        if faults:
            sentence = "; ".join(f"{fault.field}: expected {fault.expected}" for fault in faults)
            raise Problem(400, sentence, errors=faults)
        return super().filter_queryset(request, queryset, view)


def parameters_of(view: Any, method: str) -> set[str]:
    """The names of the query parameters that the view accepts with this method."""
    taken = set(view.takes.get(method, ()))
    if method not in ("GET", "HEAD"):
        return taken
    serializer = getattr(view, "query_serializer", None)
    taken |= set(serializer().fields if serializer else ())
    if not isinstance(view, ListModelMixin):
        return taken
    filterset = getattr(view, "filterset_class", None)
    ordered = any(issubclass(backend, OrderingFilter) for backend in view.filter_backends)
    return {
        *taken,
        *(filterset.base_filters if filterset else ()),
        *([OrderingFilter.ordering_param] if ordered else []),
        *(view.paginator.parameters if view.paginator else ()),
    }


def _expected(each: django_filters.Filter, found: str) -> str:
    """The expected value; empty if the parameter has no error that the filter would ignore."""
    if isinstance(each, django_filters.BooleanFilter):
        return "" if found.lower() in BOOLEANS else " or ".join(BOOLEANS)
    if not found.strip() and not isinstance(each, django_filters.CharFilter):
        return "a value; omit the parameter to get all"
    return ""
