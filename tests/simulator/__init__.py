"""Tests of the simulator: virtual time, machines, networks, mathematics, and the live engine in it."""
