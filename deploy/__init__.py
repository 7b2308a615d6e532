"""Scripts for those who install Paceline."""
