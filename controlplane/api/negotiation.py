"""Media types: JSON and YAML come in, JSON goes out."""

from typing import Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request


class AlwaysJson(BaseContentNegotiation):
    """There is one representation, so what a client would rather have is not asked."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """The parser of the body's media type, None if there is none; an unnamed body is JSON."""
        given = (request.content_type or "application/json").partition(";")[0].strip().lower()
        aliases = {"application/x-yaml": "application/yaml", "text/yaml": "application/yaml"}
        return next((parser for parser in parsers if parser.media_type == aliases.get(given, given)), None)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        """JSON."""
        return renderers[0], renderers[0].media_type
