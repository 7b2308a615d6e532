"""Commands of the live driver."""
