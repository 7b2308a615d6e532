"""Commands about what was, and what would be."""
