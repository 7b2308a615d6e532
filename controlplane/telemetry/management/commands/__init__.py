"""Commands about recorded and simulated runs."""
