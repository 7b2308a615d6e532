"""Commands that speak to the API, or hand out what it takes."""
