"""The demo: one job under two policies on machines of uneven speed, driven over REST as a user would.

It measures what it shows and judges it itself; nothing here reaches into the control plane's database or engine.
"""
