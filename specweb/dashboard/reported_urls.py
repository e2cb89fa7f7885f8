"""Addresses of what other tools report."""

from django.urls import path

from . import reported_import as importing
from . import reported_views as views

urlpatterns = [
    path("reported/", views.reported, name="reported"),
    path("reported/new", importing.reported_new, name="reported-new"),
    path("reported/draft/<uuid:draft_id>/", importing.reported_draft, name="reported-draft"),
    path("reported/beside", views.beside, name="reported-beside"),
    path("reported/templates/<int:template_id>/delete", views.template_delete, name="reported-template-delete"),
    path("reported/<uuid:report_id>/", views.report, name="reported-one"),
    path("reported/<uuid:report_id>/file", views.report_file, name="reported-one-file"),
    path("reported/<uuid:report_id>/visibility", views.report_visibility, name="reported-one-visibility"),
    path("reported/<uuid:report_id>/delete", views.report_delete, name="reported-one-delete"),
]
