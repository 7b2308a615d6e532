"""The root URL configuration."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from frontend.views.login import admin_sign_in

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/login/", admin_sign_in),
    path("admin/", admin.site.urls),
    # First: the last pattern of the API answers all other paths below /api/ with a 404.
    path("", include("frontend.urls")),
    path("", include("controlplane.api.urls")),
]

handler400 = "controlplane.api.problems.bad_request"
handler403 = "controlplane.api.problems.permission_denied"
handler404 = "controlplane.api.problems.page_not_found"
handler500 = "controlplane.api.problems.server_error"
