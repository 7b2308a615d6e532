"""Where requests go."""

from importlib.util import find_spec

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [path("admin/", admin.site.urls)]
if find_spec("controlplane.api.urls"):
    urlpatterns.append(path("", include("controlplane.api.urls")))
if find_spec("frontend.urls"):
    urlpatterns.append(path("", include("frontend.urls")))
