"""Login by an OpenID provider, where one is configured. An account is found by issuer and subject alone, never by an e-mail address.

Who comes for the first time gets an account of their own, even if some account has the same address or name: only its owner,
logged in, can link the two. So nobody comes into an account by what they got a provider to write down.
"""

from __future__ import annotations

import logging
import re
from datetime import datetime, timedelta
from typing import Any

import jwt
import requests
from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import SuspiciousOperation
from django.db import IntegrityError, transaction
from django.utils import timezone
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from . import audit
from .models import Membership, OidcIdentity, Role, Team, User
from .services import AccountError, set_role

log = logging.getLogger(__name__)
TIMEOUT_S = 10
DISCOVERED_FOR = timedelta(hours=1)
#: In the session of who asked to link a login to their account: their own id.
LINKING = "oidc_linking"
_ENDPOINTS = {
    "OIDC_OP_AUTHORIZATION_ENDPOINT": "authorization_endpoint",
    "OIDC_OP_TOKEN_ENDPOINT": "token_endpoint",
    "OIDC_OP_USER_ENDPOINT": "userinfo_endpoint",
    "OIDC_OP_JWKS_ENDPOINT": "jwks_uri",
}
_found: dict[str, tuple[datetime, dict[str, Any]]] = {}


class OidcRefused(SuspiciousOperation):
    """Why somebody whom the provider vouches for doesn't get in, in words for them."""


def is_on() -> bool:
    return bool(settings.SPECWEB_OIDC_ISSUER)


def discovered() -> dict[str, Any]:
    """What the provider says of itself, asked once an hour. Raises :class:`OidcRefused` if it can't be reached or is another."""
    issuer = settings.SPECWEB_OIDC_ISSUER
    known = _found.get(issuer)
    if known and known[0] > timezone.now() - DISCOVERED_FOR:
        return known[1]
    try:
        answer = requests.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration", timeout=TIMEOUT_S)
        answer.raise_for_status()
        told = answer.json()
    except (requests.RequestException, ValueError) as error:
        log.warning("the OpenID provider %s can't be asked: %s", issuer, error)
        raise OidcRefused("The login provider can't be reached. Try again, or log in with a password.") from None
    if not isinstance(told, dict) or told.get("issuer") != issuer or not all(told.get(name) for name in _ENDPOINTS.values()):
        log.warning("what %s says of itself is not whole, or it is of another issuer", issuer)
        raise OidcRefused("The login provider is not the one that is configured here. Tell whoever runs the service.")
    _found[issuer] = (timezone.now(), told)
    return told


def setting(name: str, *default: Any) -> Any:
    """A setting as the OIDC library asks for it: the endpoints are the provider's own word."""
    if name in _ENDPOINTS:
        return discovered()[_ENDPOINTS[name]]
    fixed = {
        "OIDC_RP_CLIENT_ID": settings.SPECWEB_OIDC_CLIENT_ID,
        "OIDC_RP_CLIENT_SECRET": settings.SPECWEB_OIDC_CLIENT_SECRET,
        "OIDC_RP_SIGN_ALGO": settings.SPECWEB_OIDC_ALGORITHM,
        "OIDC_RP_SCOPES": settings.SPECWEB_OIDC_SCOPES,
        "OIDC_USE_PKCE": True,
        "OIDC_USE_NONCE": True,
        "OIDC_TIMEOUT": TIMEOUT_S,
        "LOGIN_REDIRECT_URL": settings.LOGIN_REDIRECT_URL,
        "LOGIN_REDIRECT_URL_FAILURE": settings.LOGIN_URL,
    }
    return fixed.get(name, default[0] if default else None)


class OidcBackend(OIDCAuthenticationBackend):
    """Takes the provider's answer apart and finds or makes the account. The provider is asked only when somebody logs in by it."""

    get_settings = staticmethod(setting)
    get_user = ModelBackend.get_user  # which knows of closed accounts

    def __init__(self) -> None:
        self.UserModel = User

    def authenticate(self, request: Any, **kwargs: Any) -> User | None:
        if request is None or "nonce" not in kwargs or not is_on():
            return None
        super().__init__()
        return super().authenticate(request, **kwargs)  # type: ignore[no-any-return]

    def retrieve_matching_jwk(self, token: str) -> Any:
        """The provider's key by the id that the token names; a token that names none is for a provider with one key."""
        answer = requests.get(self.OIDC_OP_JWKS_ENDPOINT, timeout=TIMEOUT_S)
        answer.raise_for_status()
        wanted = jwt.get_unverified_header(token).get("kid")
        told = [
            k
            for k in answer.json()["keys"]
            if k.get("use", "sig") == "sig" and k.get("alg", self.OIDC_RP_SIGN_ALGO) == self.OIDC_RP_SIGN_ALGO
        ]
        fitting = [k for k in told if wanted is None or k.get("kid") == wanted]
        if len(fitting) != 1:
            raise SuspiciousOperation(f"{len(fitting)} keys of the provider fit the id token")
        return jwt.PyJWK(fitting[0], self.OIDC_RP_SIGN_ALGO)

    def get_payload_data(self, token: Any, key: Any) -> dict[str, Any]:
        """The id token's claims: signed by the provider, for this client, still good."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[settings.SPECWEB_OIDC_ALGORITHM],
                audience=settings.SPECWEB_OIDC_CLIENT_ID,
                issuer=settings.SPECWEB_OIDC_ISSUER,
                leeway=30,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise SuspiciousOperation(f"the id token is refused: {error}") from None
        if claims.get("azp", settings.SPECWEB_OIDC_CLIENT_ID) != settings.SPECWEB_OIDC_CLIENT_ID:
            raise SuspiciousOperation("the id token was made for another client")
        return claims

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> User | None:
        info = self.get_userinfo(access_token, id_token, payload)
        if not isinstance(info, dict) or info.get("sub") != payload["sub"]:
            raise SuspiciousOperation("the user info is of another person than the id token")
        linking = self.request.session.pop(LINKING, None)
        asker = self.request.user if self.request.user.is_authenticated and self.request.user.pk == linking else None
        try:
            user = account_of(payload["iss"], payload["sub"], {**payload, **info}, asker=asker, now=timezone.now())
        except OidcRefused as error:
            self.request.oidc_refused = str(error)  # the view tells it; the library would only log it
            return None
        if not user.is_active:
            self.request.oidc_refused = "This account is closed."
            return None
        follow_groups(user, {**payload, **info}.get(settings.SPECWEB_OIDC_GROUPS_CLAIM))
        return user


def account_of(issuer: str, subject: str, claims: dict[str, Any], *, asker: User | None, now: datetime) -> User:
    """The account of a person at the provider: the known one, else that of ``asker``, who asked to link it, else a new one.

    Raises :class:`OidcRefused`.
    """
    known = OidcIdentity.objects.filter(issuer=issuer, subject=subject).select_related("user").first()
    if known is not None:
        if asker is not None and known.user_id != asker.pk:
            raise OidcRefused("This login belongs to another account already.")
        return known.user
    try:
        with transaction.atomic():
            user = asker or _new_account(claims, now)
            OidcIdentity.objects.create(user=user, issuer=issuer, subject=subject)
            audit.record("account.link", user.pk, user.get_username(), by=user, after=f"{subject} at {issuer}")
    except IntegrityError:  # the same person came twice at once, and the other was first
        return OidcIdentity.objects.select_related("user").get(issuer=issuer, subject=subject).user
    return user


def _new_account(claims: dict[str, Any], now: datetime) -> User:
    if not settings.SPECWEB_OIDC_NEW_ACCOUNTS:
        raise OidcRefused("There is no account of yours here yet. Get one by an invitation, then link this login on your account page.")
    email = claims.get("email")
    if not isinstance(email, str) or claims.get("email_verified") is not True:
        raise OidcRefused("Your login provider doesn't say that your e-mail address is verified, so no account is made.")
    user = User(username=_free_name(claims, email), email=email[:254], email_confirmed_at=now)
    user.set_unusable_password()
    user.save()
    audit.record("account.make", user.pk, user.get_username(), by=user, after="by the login provider")
    return user


def _free_name(claims: dict[str, Any], email: str) -> str:
    wished = claims.get("preferred_username")
    base = re.sub(r"[^\w.+-]+", "-", wished if isinstance(wished, str) and wished else email.partition("@")[0]).strip("-")[:140] or "person"
    taken = {name.lower() for name in User.objects.filter(username__istartswith=base).values_list("username", flat=True)}
    return next(name for name in (base, *(f"{base}-{i}" for i in range(2, len(taken) + 3))) if name.lower() not in taken)


def follow_groups(user: User, groups: Any) -> None:
    """Gives the roles that SPECWEB_OIDC_GROUPS names for a person's groups, and takes back those that a group gave before.

    A role that somebody here gave stays, and so does the last maintainer of a team.
    """
    mapping: dict[str, tuple[str, str]] = settings.SPECWEB_OIDC_GROUPS
    if not mapping:
        return
    held = [str(g) for g in groups] if isinstance(groups, list) else []
    due: dict[str, Role] = {}
    for group in held:
        if group in mapping:
            slug, role = mapping[group][0], Role(mapping[group][1])
            due[slug] = max(due.get(slug, role), role, key=list(Role).index)
    for team in Team.objects.filter(slug__in={slug for slug, _ in mapping.values()}):
        there = Membership.objects.filter(team=team, user=user).first()
        if there is not None and not there.by_group:
            continue
        role = due.get(team.slug)
        try:
            with transaction.atomic():
                set_role(team, user, role)
                Membership.objects.filter(team=team, user=user).update(by_group=True)
        except AccountError as error:
            log.warning("a group's role is kept: %s", error)
