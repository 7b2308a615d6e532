"""Registers the live driver, so that its commands are found."""

from django.apps import AppConfig


class RuntimeConfig(AppConfig):
    """The live driver."""

    name = "controlplane.runtime"
    label = "runtime"
