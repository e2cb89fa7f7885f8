"""The one settings file: everything that differs between installations comes from the environment."""

from __future__ import annotations

import os
from pathlib import Path

import dj_database_url
import plotly
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent


def _required(name: str, example: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise ImproperlyConfigured(f"{name} is not set. Set it in the environment, for example {name}={example}")
    return value


def _flag(name: str, default: bool = False) -> bool:
    value = os.environ.get(name, "").strip().lower()
    if value not in ("", "0", "1", "true", "false", "yes", "no"):
        raise ImproperlyConfigured(f"{name} is {value!r}. Set it to 1 or 0.")
    return value in ("1", "true", "yes") if value else default


def _number(name: str, default: float) -> float:
    value = os.environ.get(name, "").strip()
    try:
        return float(value) if value else default
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {value!r}. Set it to a number, for example {default:g}.") from None


def _list(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def _groups(name: str) -> dict[str, tuple[str, str]]:
    """``group=team:role`` with commas between them, as group → (team, role)."""
    found = {}
    for part in _list(name):
        group, _, given = part.rpartition("=")
        team, _, role = given.partition(":")
        if not (group and team and role in ("viewer", "submitter", "maintainer")):
            raise ImproperlyConfigured(f"{name} has {part!r}. Write group=team:role, for example gpu-people=lab:submitter.")
        found[group] = (team, role)
    return found


def _database() -> dj_database_url.DBConfig:
    url = _required("DATABASE_URL", "postgres://specweb:secret@127.0.0.1:5432/specweb")
    try:
        config = dj_database_url.parse(url, conn_max_age=60, conn_health_checks=True)
    except (ValueError, dj_database_url.ParseError, dj_database_url.UnknownSchemeError) as error:
        raise ImproperlyConfigured(f"DATABASE_URL can't be read ({error}). Give a postgres:// address.") from None
    if config["ENGINE"] != "django.db.backends.postgresql":
        raise ImproperlyConfigured("DATABASE_URL names another database. SpecWeb needs PostgreSQL: give a postgres:// address.")
    return config


DEBUG = _flag("DEBUG")
SECRET_KEY = os.environ.get("SECRET_KEY", "") or ("only-for-debugging" if DEBUG else _required("SECRET_KEY", "a-long-random-text"))
ALLOWED_HOSTS = _list("ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")
CSRF_TRUSTED_ORIGINS = _list("CSRF_TRUSTED_ORIGINS")

DATABASES = {"default": _database()}
BROKER_URL = _required("BROKER_URL", "redis://127.0.0.1:6379/0")

#: Where browsers and agents reach this service: for links in command output and reports.
SPECWEB_BASE_URL = os.environ.get("SPECWEB_BASE_URL", "http://127.0.0.1:8000").rstrip("/")
SPECWEB_EVIDENCE_DIR = Path(os.environ.get("SPECWEB_EVIDENCE_DIR") or BASE_DIR / ".specweb" / "evidence")
SPECWEB_MAX_BLOB_BYTES = int(_number("SPECWEB_MAX_BLOB_BYTES", 1024**3))
SPECWEB_MAX_ARCHIVE_BYTES = int(_number("SPECWEB_MAX_ARCHIVE_BYTES", 4 * 1024**3))
#: Whether everybody may make an account, or only who was invited to a team; and whether everybody may make a team.
SPECWEB_OPEN_SIGNUP = _flag("SPECWEB_OPEN_SIGNUP")
SPECWEB_USERS_MAKE_TEAMS = _flag("SPECWEB_USERS_MAKE_TEAMS", default=True)
# Login by an OpenID provider: on where the issuer is named. See docs/people.md for the rules.
SPECWEB_OIDC_ISSUER = os.environ.get("SPECWEB_OIDC_ISSUER", "").strip()
SPECWEB_OIDC_CLIENT_ID = _required("SPECWEB_OIDC_CLIENT_ID", "specweb") if SPECWEB_OIDC_ISSUER else ""
SPECWEB_OIDC_CLIENT_SECRET = _required("SPECWEB_OIDC_CLIENT_SECRET", "a-long-random-text") if SPECWEB_OIDC_ISSUER else ""
SPECWEB_OIDC_ALGORITHM = os.environ.get("SPECWEB_OIDC_ALGORITHM", "").strip() or "RS256"
SPECWEB_OIDC_SCOPES = os.environ.get("SPECWEB_OIDC_SCOPES", "").strip() or "openid email profile"
SPECWEB_OIDC_NEW_ACCOUNTS = _flag("SPECWEB_OIDC_NEW_ACCOUNTS", default=True)
SPECWEB_OIDC_GROUPS_CLAIM = os.environ.get("SPECWEB_OIDC_GROUPS_CLAIM", "").strip() or "groups"
SPECWEB_OIDC_GROUPS = _groups("SPECWEB_OIDC_GROUPS")
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    *(["specweb.accounts.oidc.OidcBackend"] if SPECWEB_OIDC_ISSUER else []),
]
# Mail for invitations, lost passwords and confirmed addresses: only where EMAIL_HOST names an SMTP server.
EMAIL_HOST = os.environ.get("EMAIL_HOST", "").strip()
EMAIL_PORT = int(_number("EMAIL_PORT", 587))
EMAIL_HOST_USER = os.environ.get("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = os.environ.get("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_SSL = EMAIL_PORT == 465
EMAIL_USE_TLS = _flag("EMAIL_USE_TLS", default=EMAIL_PORT == 587)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = os.environ.get("EMAIL_FROM", "").strip() or EMAIL_HOST_USER or "specweb@localhost"
PASSWORD_RESET_TIMEOUT = 3600
#: Whether the audit log keeps the address that a change was asked from.
SPECWEB_AUDIT_ADDRESSES = _flag("SPECWEB_AUDIT_ADDRESSES", default=True)
SPECWEB_POLL_IDLE_S = _number("SPECWEB_POLL_IDLE_S", 10.0)
SPECWEB_POLL_RUNNING_S = _number("SPECWEB_POLL_RUNNING_S", 2.0)
SPECWEB_STALLED_AFTER_S = _number("SPECWEB_STALLED_AFTER_S", 30.0)
SPECWEB_HOST_LOST_AFTER_S = _number("SPECWEB_HOST_LOST_AFTER_S", 24 * 3600.0)
SPECWEB_WAITING_FOR_S = _number("SPECWEB_WAITING_FOR_S", 7 * 24 * 3600.0)

# Watches: how often they are looked at, how many a team may have, and repeats of all of them in 24 hours.
SPECWEB_WATCH_EVERY_S = _number("SPECWEB_WATCH_EVERY_S", 20.0)
SPECWEB_WATCHES_PER_TEAM = int(_number("SPECWEB_WATCHES_PER_TEAM", 50))
SPECWEB_WATCH_RUNS_PER_DAY = int(_number("SPECWEB_WATCH_RUNS_PER_DAY", 48))
# Notices: a host silent for so long is told of; hosts (host or host:port) that webhooks may reach although they are inside or
# without TLS; and domains whose addresses may get mail without being a member's.
SPECWEB_HOST_SILENT_S = _number("SPECWEB_HOST_SILENT_S", 900.0)
SPECWEB_NOTICE_ALLOW = [host.lower() for host in _list("SPECWEB_NOTICE_ALLOW")]
SPECWEB_NOTICE_MAIL_DOMAINS = [domain.lower() for domain in _list("SPECWEB_NOTICE_MAIL_DOMAINS")]

#: Requests a minute to the people's API, by token, and by address where none or no valid one came; 0: as many as one likes.
SPECWEB_REQUESTS_PER_MINUTE = int(_number("SPECWEB_REQUESTS_PER_MINUTE", 600))
SPECWEB_UPLOADS_PER_MINUTE = int(_number("SPECWEB_UPLOADS_PER_MINUTE", 6000))
SPECWEB_OPEN_REQUESTS_PER_MINUTE = int(_number("SPECWEB_OPEN_REQUESTS_PER_MINUTE", 60))
#: Tries of a name at the login form, by name and address.
SPECWEB_LOGINS_PER_MINUTE = int(_number("SPECWEB_LOGINS_PER_MINUTE", 10))
#: Mails (invitations, confirmed addresses, lost passwords) that one person or address may cause; one mailbox gets a sixth of it.
SPECWEB_MAILS_PER_HOUR = int(_number("SPECWEB_MAILS_PER_HOUR", 30))


def cache_at(broker_url: str) -> dict[str, object]:
    """The cache that all processes share, on the broker's server. It counts requests, and nothing is lost with it."""
    url = broker_url.replace("redis+socket://", "unix://", 1)
    if not url.startswith(("redis://", "rediss://", "unix://")):
        return {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}  # each process counts for itself
    quickly = {"socket_connect_timeout": 0.5, "socket_timeout": 0.5}
    return {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": url.replace("virtual_host=", "db="),
        "KEY_PREFIX": "specweb",
        "OPTIONS": quickly,
    }


CACHES = {"default": cache_at(os.environ.get("CACHE_URL", "").strip() or BROKER_URL)}

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "specweb.apps.StaticFiles",
    "csp",
    "django_htmx",
    "drf_spectacular",
    "specweb.accounts",
    "specweb.experiments",
    "specweb.results",
    "specweb.reported",
    "specweb.watching",
    "specweb.api",
    "specweb.dashboard",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "specweb.compressing.CompressedPages",
    "specweb.caching.private_by_default",
    "specweb.heads.nothing_is_streamed",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "specweb.accounts.audit.middleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "specweb" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "specweb.accounts.oidc_views.context",
            ],
        },
    }
]

ROOT_URLCONF = "specweb.urls"
WSGI_APPLICATION = "specweb.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

LANGUAGE_CODE = "en-gb"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

# Static files: straight from their sources while developing and testing; otherwise what `collectstatic` made.
STATIC_URL = "/static/"
STATIC_ROOT = Path(os.environ.get("SPECWEB_STATIC_ROOT") or BASE_DIR / "staticfiles")
STATICFILES_DIRS = [
    BASE_DIR / "specweb" / "static",
    ("vendor", Path(plotly.__file__).parent / "package_data"),  # plotly.min.js; specweb.apps leaves the rest out
]
STATIC_FROM_SOURCE = _flag("SPECWEB_STATIC_FROM_SOURCE", default=DEBUG)
WHITENOISE_USE_FINDERS = STATIC_FROM_SOURCE
WHITENOISE_AUTOREFRESH = STATIC_FROM_SOURCE
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},  # nobody uploads through Django's storage
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if STATIC_FROM_SOURCE
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}

CONTENT_SECURITY_POLICY = {
    # The directives beside default-src are those that it doesn't cover and only narrow; but for images that the page itself made:
    # a chart becomes a PNG by being painted from its SVG.
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "blob:"],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "object-src": [NONE],
    },
}
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SPECWEB_BASE_URL.startswith("https://")
if _flag("SPECWEB_BEHIND_PROXY"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

#: Inventories carry the manifests and help flags of every engine build of a host.
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 1024**2
#: The experiment form with 40 arms and 60 points has more than the usual thousand fields.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 4000
CSRF_FAILURE_VIEW = "specweb.dashboard.form_session.csrf_failure"

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_SCHEMA_CLASS": "specweb.api.schema.Described",
    "EXCEPTION_HANDLER": "specweb.api.errors.handle",
    "UNAUTHENTICATED_USER": None,
}

SPECTACULAR_SETTINGS = {
    "TITLE": "SpecWeb",
    "DESCRIPTION": "Experiments on speculative decoding: what was asked, what ran, every number with its evidence. See docs/api.md.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVERS": [{"url": SPECWEB_BASE_URL}],
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    # Refusals are the API's to log, with their code, and a form that is too large is the page's; a page that isn't there is no event.
    "loggers": {
        "django.request": {"level": "ERROR"},
        **{f"django.security.{name}": {"level": "CRITICAL"} for name in ("RequestDataTooBig", "TooManyFieldsSent", "TooManyFilesSent")},
    },
    "root": {"handlers": ["stderr"], "level": os.environ.get("LOG_LEVEL", "INFO")},
}
