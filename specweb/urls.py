"""The address tree: agents under /agent, people's pages everywhere else."""

from django.urls import include, path

urlpatterns = [
    path("", include("specweb.accounts.urls")),
    path("", include("specweb.dashboard.urls")),
]
