"""Injects faults into jobs and into the control plane, and checks that nothing is lost."""
