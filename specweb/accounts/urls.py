"""Ways in that belong to accounts; the login form is a page."""

from django.urls import path

from .views import login_once

urlpatterns = [path("login/once/<str:secret>", login_once, name="login-once")]
