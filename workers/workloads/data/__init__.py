"""Datasets with a fixed split into training and held-out samples: bundled, generated, or read from files.

Shapes are known without reading any data, so servers, which need only shapes, do not read it.
"""
