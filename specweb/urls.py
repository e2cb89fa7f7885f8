"""The address tree: agents under /agent, people's programs under /api, people's pages everywhere else."""

from django.urls import include, path, re_path

from specweb.api.agent_views import NothingHere
from specweb.api.health import health

urlpatterns = [
    path("healthz", health),
    path("agent/v1/", include("specweb.api.agent_urls")),
    path("api/v1/", include("specweb.api.people_urls")),
    re_path("^(?:api|agent)(?:/|$)", NothingHere.as_view()),
    path("", include("specweb.accounts.urls")),
    path("", include("specweb.dashboard.urls")),
    path("", include("specweb.dashboard.reported_urls")),
    path("", include("specweb.dashboard.watch_urls")),
]

handler400 = "specweb.dashboard.form_session.bad_request"
