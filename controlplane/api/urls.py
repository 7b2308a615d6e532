"""The API's addresses: without slashes at their ends."""

from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

from controlplane.api import health
from controlplane.api.views import (
    catalogues,
    figures,
    fleet,
    history,
    index,
    jobs,
    logs,
    model,
    people,
    simulations,
    steering,
)

V1 = [
    path("", index.IndexView.as_view(), name="index"),
    path("jobs", jobs.JobsView.as_view(), name="jobs"),
    path("jobs/<int:pk>", jobs.JobView.as_view(), name="job"),
    path("jobs/<int:pk>/actions/stop", jobs.JobStopView.as_view(), name="job-stop"),
    path("jobs/<int:pk>/actions/pause", steering.JobPauseView.as_view(), name="job-pause"),
    path("jobs/<int:pk>/actions/resume", steering.JobResumeView.as_view(), name="job-resume"),
    path("jobs/<int:pk>/actions/promote", steering.JobPromoteView.as_view(), name="job-promote"),
    path("jobs/<int:pk>/policy", steering.JobPolicyView.as_view(), name="job-policy"),
    path("jobs/<int:pk>/processes", jobs.JobProcessesView.as_view(), name="job-processes"),
    path("jobs/<int:pk>/metrics", history.MetricsView.as_view(), name="job-metrics"),
    path("jobs/<int:pk>/decisions", history.DecisionsView.as_view(), name="job-decisions"),
    path("jobs/<int:pk>/flags", history.FlagsView.as_view(), name="job-flags"),
    path("jobs/<int:pk>/logs", logs.LogsView.as_view(), name="job-logs"),
    path("jobs/<int:pk>/logs/text", logs.LogsTextView.as_view(), name="job-logs-text"),
    path("jobs/<int:pk>/events", history.EventsView.as_view(), name="job-events"),
    path("jobs/<int:pk>/placement", history.PlacementView.as_view(), name="job-placement"),
    path("jobs/<int:pk>/figures/<slug:name>", figures.FigureView.as_view(), name="job-figure"),
    path("comparisons/<slug:name>", figures.ComparisonView.as_view(), name="comparison-figure"),
    path("jobs/<int:pk>/report", figures.ReportView.as_view(), name="job-report"),
    path("jobs/<int:pk>/trace", figures.TraceView.as_view(), name="job-trace"),
    path("jobs/<int:pk>/model", model.ModelView.as_view(), name="job-model"),
    path("agents", fleet.AgentsView.as_view(), name="agents"),
    path("agents/<int:pk>", fleet.AgentView.as_view(), name="agent"),
    path("agents/<int:pk>/figures/<slug:name>", figures.MachineFigureView.as_view(), name="agent-figure"),
    path("agents/enrol", fleet.EnrolView.as_view(), name="agents-enrol"),
    path("agents/enrolment-tokens", fleet.EnrolmentTokensView.as_view(), name="agents-enrolment-tokens"),
    path("workers", jobs.WorkersView.as_view(), name="workers"),
    path("servers", jobs.ServersView.as_view(), name="servers"),
    path("policies", catalogues.PoliciesView.as_view(), name="policies"),
    path("workloads", catalogues.WorkloadsView.as_view(), name="workloads"),
    path("scenarios", simulations.ScenariosView.as_view(), name="scenarios"),
    path("simulations", simulations.SimulationsView.as_view(), name="simulations"),
    path("simulations/<int:pk>", simulations.SimulationView.as_view(), name="simulation"),
    path("simulations/<int:pk>/actions/cancel", simulations.SimulationCancelView.as_view(), name="simulation-cancel"),
    path("tokens", people.TokensView.as_view(), name="tokens"),
    path("tokens/<slug:key>", people.TokenView.as_view(), name="token"),
    path("me", people.MeView.as_view(), name="me"),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerView.as_view(url_name="api:schema"), name="docs"),
]

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("api/v1/", include((V1, "api"))),
    re_path("^api/", index.NowhereView.as_view()),
]
