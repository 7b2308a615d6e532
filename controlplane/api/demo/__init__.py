"""The demo: one job under two policies on machines of uneven speed, driven over REST as a user would.

It measures what it shows and evaluates it itself; it uses neither the control plane's database nor its engine.
"""
