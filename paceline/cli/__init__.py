"""The console command ``paceline``. Commands that need the control plane's packages are passed on to them."""
