"""Networks as torch modules. None uses batch norm: its statistics would depend on how samples are divided among
workers.
"""
