"""Views: thin. Services and selectors do the work; what goes wrong becomes a problem document."""
