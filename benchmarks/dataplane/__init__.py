"""Measures the data plane: parameter servers, all-reduce, memory of a worker."""
