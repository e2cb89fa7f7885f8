"""The experiment form's other view: what is typed as a file, and a file as what is typed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from speccore.spec import SpecProblem
from speccore.sweeps import swept
from speccore.yamltext import MAX_BYTES, data_to_yaml, read_yaml

from specweb.accounts.models import Team, User
from specweb.experiments.services.checking import check, check_yaml

from .form_data import data_of, typed_of
from .form_page import SUMMARY, Fault, Reply, Sent, faults_of, own_faults


def to_yaml(sent: Sent) -> Reply:
    """What is typed, as a file; the text that it was read from, comments and all, if the form says the same."""
    if sent.view == "yaml":
        return Reply(sent)
    if faults := own_faults(sent):
        return Reply(sent, faults, SUMMARY)
    data = data_of(sent.typed)
    if sent.kept and _data_of_text(sent.kept) == data:
        return Reply(replace(sent, view="yaml", yaml=sent.kept), focus="f-yaml")
    notice = "Written anew from the form; your earlier text with its comments is below." if "#" in sent.kept else ""
    return Reply(replace(sent, view="yaml", yaml=data_to_yaml(data)), focus="f-yaml", notice=notice)


def _data_of_text(text: str) -> dict[str, Any] | None:
    try:
        data = read_yaml(text.encode("utf-8", "replace"))
    except ValueError:
        return None
    return data_of(typed_of(swept(data).data)[0]) if isinstance(data, dict) else None


def from_yaml(team: Team, sent: Sent, user: User) -> Reply:
    """To the form, if it has a place for all that the text says; else the text stays, with what is wrong."""
    text = sent.yaml.encode("utf-8", "replace")
    try:
        data = read_yaml(text)
    except ValueError:
        return Reply(sent, faults_of(check_yaml(text, team, user).problems, sent), SUMMARY)
    sweeps = swept(data)  # the form has a row for each arm that a sweep makes
    if sweeps.faults:
        return Reply(sent, faults_of(check_yaml(text, team, user).problems, sent), SUMMARY)
    typed, left = typed_of(sweeps.data) if isinstance(data, dict) else (sent.typed, ["the file"])
    if left:
        problems = check(data, team, user).problems or [SpecProblem(field=path, message="the form has no place for this") for path in left]
        notice = "The form has no place for everything in this text. Mend it here first; nothing was changed."
        return Reply(sent, faults_of(problems, sent), SUMMARY, notice)
    sent = replace(sent, typed=typed, view="form", kept=sent.yaml)
    faults = faults_of(check(data_of(typed), team, user).problems, sent)
    return Reply(sent, faults, SUMMARY if faults else "f-name")


def from_file(team: Team, sent: Sent, file: UploadedFile | None, user: User) -> Reply:
    """The same for a file; what stood in the form before can be had back."""
    if file is None:
        return Reply(sent, [Fault("", "No file was chosen: choose a YAML or JSON file first", "File")], SUMMARY)
    content = file.read(MAX_BYTES + 1) if file.size <= MAX_BYTES else b""
    if file.size > MAX_BYTES:
        words = f"{file.name} has {file.size:,} bytes, more than the {MAX_BYTES:,} that are read: is it the right file?"
        return Reply(sent, [Fault("", words, "File")], SUMMARY)
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return Reply(sent, [Fault("", f"{file.name} is no UTF-8 text: save it as UTF-8 first", "File")], SUMMARY)
    before = sent.yaml if sent.view == "yaml" else data_to_yaml(data_of(sent.typed))
    reply = from_yaml(team, replace(sent, view="yaml", yaml=text, before=before), user)
    return replace(reply, notice=reply.notice or f"{file.name} took the place of what stood here.")
