"""History: every event raw, reports and evaluations as rows, and the cursors of ingest."""
