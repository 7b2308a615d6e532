"""Adapters for other libraries: one module per library, which imports only that library."""
