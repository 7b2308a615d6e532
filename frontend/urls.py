"""Addresses of pages and of their live parts."""

from django.contrib.auth.views import LogoutView
from django.urls import path, re_path

from frontend.views import (
    audit,
    comparison,
    exports,
    freshness,
    jobs,
    login,
    machines,
    overview,
    simulations,
    system,
    waiting,
)

urlpatterns = [
    path("", overview.overview_page, name="overview"),
    path("live/", overview.overview_live, name="overview-live"),
    path("freshness/", freshness.freshness_live, name="freshness-live"),
    path("login/", login.SignIn.as_view(), name="login"),
    path("login/once/<str:token>/", login.login_once, name="login-once"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("jobs/", jobs.jobs_page, name="jobs"),
    path("jobs/new/", jobs.submit_page, name="submit"),
    path("jobs/<int:job_id>/", jobs.job_page, name="job"),
    path("jobs/<int:job_id>/live/", jobs.job_live, name="job-live"),
    re_path(
        r"^jobs/(?P<job_id>\d+)/decisions\.(?P<form>csv|json)$", exports.decisions_export, name="job-decisions-export"
    ),
    path("audit/", audit.audit, name="audit"),
    re_path(r"^audit\.(?P<form>csv|json)$", exports.audit_export, name="audit-export"),
    path("compare/", comparison.comparison_page, name="comparison"),
    path("simulations/", simulations.simulations_page, name="simulations"),
    path("simulations/job/", simulations.simulation_job, name="simulation-job"),
    path("simulations/<int:pk>/", simulations.simulation_page, name="simulation"),
    path("waiting/", waiting.waiting_page, name="waiting"),
    path("system/", system.system_page, name="system"),
    path("system/live/", system.system_live, name="system-live"),
    path("workers/", machines.machines_page, name="machines"),
    path("workers/<int:agent_id>/", machines.machine_page, name="machine"),
    path("workers/<int:agent_id>/live/", machines.machine_live, name="machine-live"),
    path("workers/live/", machines.machines_live, name="machines-live"),
    path("workers/enrolment/", machines.enrolment, name="enrolment"),
]
