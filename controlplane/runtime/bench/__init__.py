"""Measures the live driver on this machine, side by side with what it is compared to, in one run."""
