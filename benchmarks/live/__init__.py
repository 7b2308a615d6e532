"""Measures a running control plane with simulated workers, over real websockets."""
