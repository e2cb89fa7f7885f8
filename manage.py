#!/usr/bin/env python
"""Django's command line. Without a DATABASE_URL it speaks with the service that `make demo` has up on this machine."""

import json
import os
import sys
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db.utils import OperationalError

BAD_INPUT = 2


def settings_of_demo() -> dict[str, str]:
    """Empty if no demo is up: whatever needs settings then says which. Raises ``ImproperlyConfigured``."""
    try:
        from demo import preflight
    except ModuleNotFoundError:  # an installation has none
        return {}
    file = Path(preflight.default_home()) / preflight.ENVIRONMENT_FILE
    try:
        settings: dict[str, str] = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ImproperlyConfigured(f"the demo's settings in {file} can't be read: {error}.") from error
    return settings


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "specweb.settings")
    try:
        if not os.environ.get("DATABASE_URL"):
            os.environ.update(settings_of_demo())
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.stderr.write(f"manage.py: {error}\nOr start `make demo` here, with the same SPECWEB_HOME: its settings are taken then.\n")
        return BAD_INPUT
    except OperationalError as error:
        sys.stderr.write(f"manage.py: the database can't be used: {str(error).strip()}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
