"""Addresses of agent protocol v1."""

from django.urls import path, re_path

from . import agent_views as views

urlpatterns = [
    path("enrol", views.EnrolView.as_view()),
    path("poll", views.PollView.as_view()),
    path("inventory", views.InventoryView.as_view()),
    path("workloads/<str:content_hash>", views.WorkloadView.as_view()),
    path("blobs/<str:sha256>", views.BlobView.as_view()),
    path("attempts/<uuid:attempt_id>/report", views.ReportView.as_view()),
    re_path("", views.NothingHere.as_view()),
]
