"""Writes an experiment with all its evidence into one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from speccore.errors import SpecWebError

from specweb.accounts.models import User
from specweb.results.archive_writing import archive_of, file_name

from .report import find_experiment


class Command(BaseCommand):
    help = "Writes an experiment (or a job's experiment) as an archive that import_archive takes on another server."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="id of an experiment or of a job")
        parser.add_argument("--out", metavar="FILE", help="where to; without it, a file in this folder named after the experiment")
        parser.add_argument("--as", dest="user", metavar="USER", help="for whom: without it, for who submitted it")

    def handle(self, *args: Any, id: str, out: str | None, user: str | None, **options: Any) -> None:
        experiment = find_experiment(id)
        reader = User.objects.filter(username=user).first() if user else experiment.created_by
        if reader is None:
            raise CommandError(f"there is no user {user!r}" if user else "who submitted it is gone: name a reader with --as")
        path = Path(out or file_name(experiment))
        part = path.with_name(f"{path.name}.part")
        try:
            with part.open("wb") as file:
                for piece in archive_of(experiment, reader):
                    file.write(piece)
            part.replace(path)
        except SpecWebError as error:
            raise CommandError(f"{error.message} {error.remedy_text}".strip()) from None
        except OSError as error:
            raise CommandError(f"{path} can't be written: {error.strerror or error}") from None
        finally:
            part.unlink(missing_ok=True)
        self.stdout.write(f"{path} ({path.stat().st_size:,} bytes)")
