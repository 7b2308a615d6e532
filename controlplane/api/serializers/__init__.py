"""Rows as the API shows them, and the small documents that it accepts, by subject as in ``api.views``."""
