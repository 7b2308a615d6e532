"""Compresses pages and figures for browsers that accept it; other responses are not changed.

The size of a compressed page can reveal a secret in it if an attacker controls other text in the same page (BREACH).
CSRF tokens are masked differently in each page, credentials are shown once and never beside text from the URL, and
Django pads each response by a random length.
"""

from typing import Final

from django.http import HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware

TYPES: Final = frozenset({"text/html", "application/json"})


class CompressedReplies(GZipMiddleware):
    """Compresses whole pages and JSON, but no streams and no other downloads."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Compress responses of these types only."""
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if response.streaming or kind not in TYPES:
            return response
        compressed: HttpResponseBase = super().process_response(request, response)
        return compressed
