"""Addresses of watches and notices."""

from django.urls import path

from . import notice_views, watch_views

urlpatterns = [
    path("watches/", watch_views.watches, name="watches"),
    path("watches/<uuid:watch_id>/", watch_views.watch, name="watch"),
    path("watches/<uuid:watch_id>/pause", watch_views.pause, name="watch-pause"),
    path("watches/<uuid:watch_id>/resume", watch_views.resume, name="watch-resume"),
    path("watches/<uuid:watch_id>/stop", watch_views.stop, name="watch-stop"),
    path("alerts/<uuid:alert_id>/acknowledge", watch_views.acknowledge, name="alert-acknowledge"),
    path("experiments/<uuid:experiment_id>/watch", watch_views.watch_new, name="watch-new"),
    path("notices/", notice_views.notices, name="notices"),
    path("notices/channels", notice_views.channel_new, name="channel-new"),
    path("notices/channels/<uuid:channel_id>/test", notice_views.channel_test, name="channel-test"),
    path("notices/channels/<uuid:channel_id>/enable", notice_views.channel_enable, name="channel-enable"),
    path("notices/channels/<uuid:channel_id>/delete", notice_views.channel_delete, name="channel-delete"),
]
