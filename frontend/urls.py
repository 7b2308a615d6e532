"""URLs of pages, of their live parts, and of the figures and reports that REST serves."""

from django.contrib.auth.views import LogoutView
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from frontend.views import (
    account,
    alerts,
    audit,
    comparison,
    exports,
    figures,
    freshness,
    glossary,
    jobs,
    login,
    machines,
    overview,
    simulations,
    system,
    waiting,
)

REST = [
    path("jobs/<int:pk>/figures/<slug:name>", figures.FigureView.as_view(), name="job-figure"),
    path("jobs/<int:pk>/report", figures.ReportView.as_view(), name="job-report"),
    path("jobs/<int:pk>/trace", figures.TraceView.as_view(), name="job-trace"),
    path("comparisons/<slug:name>", figures.ComparisonView.as_view(), name="comparison-figure"),
    path("agents/<int:pk>/figures/<slug:name>", figures.MachineFigureView.as_view(), name="agent-figure"),
    path("simulations/<int:pk>/figures/<slug:name>", figures.SimulationFigureView.as_view(), name="simulation-figure"),
]

urlpatterns = [
    path("api/v1/", include(REST)),
    path("favicon.ico", RedirectView.as_view(url="/static/paceline/mark.svg")),  # for pages that have no icon
    path("", overview.overview_page, name="overview"),
    path("live/", overview.overview_live, name="overview-live"),
    path("freshness/", freshness.freshness_live, name="freshness-live"),
    path("login/", login.SignIn.as_view(), name="login"),
    path("login/once/<str:token>/", login.login_once, name="login-once"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("jobs/", jobs.jobs_page, name="jobs"),
    path("jobs/new/", jobs.submit_page, name="submit"),
    path("jobs/<int:job_id>/", jobs.job_page, name="job"),
    path("jobs/<int:job_id>/token/", jobs.rotate_token, name="job-token"),
    path("jobs/<int:job_id>/live/", jobs.job_live, name="job-live"),
    re_path(
        r"^jobs/(?P<job_id>\d+)/decisions\.(?P<form>csv|json)$", exports.decisions_export, name="job-decisions-export"
    ),
    path("account/", account.account_page, name="account"),
    path("account/live/", account.account_live, name="account-live"),
    path("account/token/", account.account_token, name="account-token"),
    path("alerts/", alerts.alerts_page, name="alerts"),
    path("alerts/live/", alerts.alerts_live, name="alerts-live"),
    path("audit/", audit.audit, name="audit"),
    re_path(r"^audit\.(?P<form>csv|json)$", exports.audit_export, name="audit-export"),
    path("glossary/", glossary.glossary_page, name="glossary"),
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
