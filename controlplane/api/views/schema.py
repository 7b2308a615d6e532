"""Views of the OpenAPI document, which is generated once, as this takes a second."""

from functools import cache
from threading import Lock
from typing import Any

from django.http import HttpResponse
from drf_spectacular.renderers import OpenApiYamlRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.request import Request

from controlplane.api.parsers import JsonParser

_turn = Lock()


class SchemaView(SpectacularAPIView):
    """The same bytes for all clients."""

    parser_classes = (JsonParser,)

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        """The document, as YAML."""
        with _turn:  # concurrent requests wait for it
            body = _document()
        headers = {"Content-Disposition": 'inline; filename="Paceline (v1).yaml"'}
        return HttpResponse(body, content_type=OpenApiYamlRenderer.media_type, headers=headers)


class DocsView(SpectacularSwaggerSplitView):
    """Swagger UI, its script separate from the page, as the content security policy requires."""

    url_name = "api:schema"
    template_name = "pages/api_docs.html"


@cache
def _document() -> bytes:
    schema = SpectacularAPIView.generator_class().get_schema(request=None, public=True)
    body: bytes = OpenApiYamlRenderer().render(schema, renderer_context={})
    return body
