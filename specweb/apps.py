"""Static files, with what plotly ships beside its script left out."""

from django.contrib.staticfiles.apps import StaticFilesConfig


class StaticFiles(StaticFilesConfig):
    ignore_patterns = [*StaticFilesConfig.ignore_patterns, "datasets", "templates", "widgetbundle.js"]
