"""Database reads of pages and figures; only these modules of the frontend use tables. None writes."""
