"""Rows as the API shows them, and the small documents that it takes, by subject as ``api.views`` are."""
