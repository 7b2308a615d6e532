"""Measures reading and writing history, on a temporary database."""
