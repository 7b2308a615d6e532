"""Data sets, split once and for all into training and held-out samples: bundled, generated, or read from files.

Shapes are known without reading anything, so that servers, which need only shapes, have no use for the data.
"""
