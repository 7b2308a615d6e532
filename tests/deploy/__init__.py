"""Containers, checked without a container engine."""
