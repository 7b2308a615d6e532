"""REST: the control plane's public face for programs."""
