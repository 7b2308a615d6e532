"""Simulates jobs in virtual time: the live engine and policies with models of machines, networks and training."""
