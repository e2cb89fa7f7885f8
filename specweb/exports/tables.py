"""All tables that can be taken as files."""

from __future__ import annotations

from .of_attempts import ATTEMPTS, EVIDENCE, PROBES
from .of_catalogue import AUDIT, EXPERIMENTS, HOSTS, REPORTED, WORKLOADS
from .of_comparisons import COMPARISONS, NUMBERS_TABLE
from .table import Table

TABLES: dict[str, Table] = {
    t.name: t for t in (COMPARISONS, EXPERIMENTS, ATTEMPTS, PROBES, NUMBERS_TABLE, EVIDENCE, HOSTS, WORKLOADS, REPORTED, AUDIT)
}
