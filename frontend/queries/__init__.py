"""What pages and figures read from the database; the only place in the frontend that knows tables. Nothing writes."""
