"""Views: thin. Services and selectors do the work; errors become problem documents."""
