"""Prometheus metrics of the control plane, running jobs, workers, servers and machines."""
