"""Each page has its data and its actions in the API too: the table says where. A new page without an entry fails here."""

from __future__ import annotations

from django.urls import get_resolver

from specweb.api.schema import schema

#: Name of a page's address → names of the API's addresses that give its data or do what it does.
OF_PAGE = {
    "overview": "api-experiments api-hosts api-best",
    "running": "api-experiments api-job",
    "experiment-new": "api-experiments api-presets api-check",
    "presets": "api-presets",
    "experiment-preview": "api-preview",
    "experiment": "api-experiment api-integrity api-spec-yaml",
    "experiment-archive": "api-experiment-archive api-archives",
    "experiment-import": "api-experiment-import",
    "export": "api-export-comparisons api-export-experiments api-export-attempts api-export-probes api-export-numbers "
    "api-export-evidence api-export-hosts api-export-workloads api-export-reported api-export-audit",
    "compare": "api-compare api-compare-choices api-comparisons",
    "compare-charts": "api-compare api-comparisons",
    "compare-history": "api-comparisons api-analyses",
    "compare-why": "api-comparisons api-numbers",
    "models": "api-models",
    "model": "api-model",
    "hardware": "api-hardware api-best",
    "hosts": "api-hosts",
    "host-enrol": "api-host-enrol",
    "enrolment-code-withdraw": "api-host-enrol-withdraw",
    "host": "api-host",
    "host-revoke": "api-host-revoke",
    "host-drain": "api-host-drain",
    "host-undrain": "api-host-undrain",
    "workloads": "api-workloads",
    "workload-new": "api-workloads",
    "workload": "api-workload",
    "workload-file": "api-workload-file",
    "workload-share": "api-workload-share",
    "workload-archive": "api-workload-archive",
    "workload-restore": "api-workload-restore",
    "workload-delete": "api-workload",
    "reported": "api-reports",
    "reported-new": "api-reports",
    "reported-draft": "api-reports",
    "reported-beside": "api-reports",
    "reported-template-delete": "api-mapping-template",
    "reported-one": "api-report",
    "reported-one-file": "api-report-file",
    "reported-one-visibility": "api-report-visibility",
    "reported-one-delete": "api-report",
    "runtimes": "api-runtimes",
    "runtime": "api-runtime",
    "job-cancel": "api-job-cancel",
    "job-pause": "api-job-pause",
    "job-resume": "api-job-resume",
    "job-retry": "api-job-retry",
    "job-more": "api-job-more",
    "job-rest": "api-job-rest",
    "progress": "api-job",
    "numbers": "api-numbers",
    "evidence-list": "api-evidence-list",
    "order": "api-trials api-attempt",
    "attempt": "api-attempt api-trials",
    "series": "api-evidence",
    "trial-diff": "api-attempt-diff",
    "evidence": "api-evidence",
    "raw": "api-evidence",
    "runs": "api-trials",
    "report": "api-job-report",
    "experiment-share": "api-visibility api-publications",
    "experiment-visibility": "api-visibility",
    "experiment-publish": "api-publications",
    "publication": "api-publication",
    "publication-json": "api-publication",
    "publication-newest": "api-publications",
    "publication-withdraw": "api-publication-withdraw",
    "published-file": "api-evidence",
    "team": "api-team",
    "team-new": "api-teams",
    "team-rename": "api-team",
    "team-leave": "api-team-member",
    "team-member": "api-team-member",
    "team-invite": "api-invitations",
    "watches": "api-watches api-alerts",
    "watch": "api-watch api-alerts api-comparisons",
    "watch-new": "api-watches",
    "watch-pause": "api-watch-pause",
    "watch-resume": "api-watch-resume",
    "watch-stop": "api-watch-stop",
    "alert-acknowledge": "api-alert-acknowledge",
    "notices": "api-channels api-deliveries",
    "channel-new": "api-channels",
    "channel-test": "api-channel-test",
    "channel-enable": "api-channel-enable",
    "channel-delete": "api-channel",
    "team-invitation-withdraw": "api-invitation",
    "audit": "api-audit",
    "audit-csv": "api-audit",
    "account": "api-me api-tokens",
    "account-token-revoke": "api-token-revoke",
}
#: Pages that have no counterpart, each with the reason.
FOR_BROWSERS_ONLY = {
    "login": "a token is a program's login",
    "logout": "a token is a program's login",
    "login-once": "a token is a program's login",
    "account-token-make": "a token can't make itself another: who steals one must not be able to keep the door open",
    "account-password": "a password is of no use to a program, and a token must not be able to change it",
    "account-sessions-end": "logins of browsers",
    "account-email": "who changes where resets are mailed to takes the account",
    "account-email-confirm": "a link of a mail",
    "password-reset": "a way in without a token",
    "password-reset-sent": "a way in without a token",
    "password-reset-new": "a link of a mail",
    "account-oidc-link": "a login at another service, which a browser is led through",
    "oidc_authentication_init": "a login at another service, which a browser is led through",
    "oidc_authentication_callback": "a login at another service, which a browser is led through",
    "sign-up": "a way in without a token",
    "join": "a link of a mail, for who may have no account yet",
}


def names(urlconf: str) -> set[str]:
    return {p.name for p in get_resolver(urlconf).url_patterns if getattr(p, "name", None)}


def test_each_page_names_where_a_program_gets_the_same() -> None:
    pages = set().union(
        *(names(f"specweb.{conf}") for conf in ("dashboard.urls", "dashboard.reported_urls", "dashboard.watch_urls", "accounts.urls"))
    )
    missing = pages - OF_PAGE.keys() - FOR_BROWSERS_ONLY.keys()
    assert not missing, f"say in OF_PAGE which addresses of the API have what these show or do: {sorted(missing)}"
    assert not (OF_PAGE.keys() | FOR_BROWSERS_ONLY.keys()) - pages, "entries of pages that are gone"
    assert not OF_PAGE.keys() & FOR_BROWSERS_ONLY.keys()


def test_what_it_names_is_there_and_described() -> None:
    by_name = {p.name: str(p.pattern) for p in get_resolver("specweb.api.people_urls").url_patterns if p.name}
    described = {path.removeprefix("/api/v1/") for path in schema()["paths"]}
    for page, found in OF_PAGE.items():
        for name in found.split():
            assert name in by_name, (page, name)
            plain = "/".join(
                "{" + part.strip("<>").partition(":")[2] + "}" if part.startswith("<") else part for part in by_name[name].split("/")
            )
            assert plain in described, (page, plain)
