"""Commands about stored jobs."""
