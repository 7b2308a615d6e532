"""Serializers of rows and of small request documents, by subject as in ``api.views``."""
