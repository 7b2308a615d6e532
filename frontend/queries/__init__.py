"""Database reads of pages and figures: only these frontend modules access tables."""
