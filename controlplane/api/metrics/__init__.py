"""Numbers for Prometheus: of the control plane, of running jobs with their workers and servers, and of machines."""
