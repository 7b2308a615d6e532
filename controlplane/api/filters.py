"""Query parameters of lists: a value that the OpenAPI document does not allow is refused with the parameter's name.

django-filter ignores an empty value and an invalid boolean, and reads 0.5 as the number of a worker.
"""

from typing import Any, Final

import django_filters
from django import forms
from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.utils import extend_schema_field
from rest_framework.request import Request

from controlplane.api.problems import FieldError, Problem

MOST: Final = 2**31 - 1
BOOLEANS: Final = ("true", "false")


@extend_schema_field({"type": "integer", "minimum": 0, "maximum": MOST})
class CountFilter(django_filters.NumberFilter):
    """A whole number from 0 on."""

    field_class = forms.IntegerField

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"min_value": 0, "max_value": MOST, **options})


class StrictFilters(DjangoFilterBackend):
    """The filters of a view's ``filterset_class``."""

    def filter_queryset(self, request: Request, queryset: "QuerySet[Any]", view: Any) -> Any:
        """The rows that match.

        Raises:
            Problem: naming parameters that are empty, or no boolean.
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


def _expected(each: django_filters.Filter, found: str) -> str:
    """The expected value; empty if the parameter has no error that the filter would ignore."""
    if isinstance(each, django_filters.BooleanFilter):
        return "" if found.lower() in BOOLEANS else " or ".join(BOOLEANS)
    if not found.strip() and not isinstance(each, django_filters.CharFilter):
        return "a value; omit the parameter to get all"
    return ""
