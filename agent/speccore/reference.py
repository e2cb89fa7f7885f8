"""Launch commands of an experiment without a host: for builds whose capabilities were recorded once, one for each dialect."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

from pydantic import TypeAdapter

from . import engines
from .commandline import Command, command_differences
from .engines import Bindings
from .inventory import Capabilities, Peer
from .spec import Arm, ExperimentSpec

#: What stands in a command for what only a host decides.
PORT, THREADS = "{port}", "{threads}"


class ReferenceBuild(Peer):
    name: str
    words: str  # which builds it stands for
    engine: str
    capabilities: Capabilities


@dataclass(frozen=True)
class ReferenceCommands:
    """``refusals``: arm → what this build can't do, in words; such an arm has no command."""

    build: ReferenceBuild
    commands: list[Command]
    argv: dict[str, list[str]]
    refusals: dict[str, list[str]]


@cache
def reference_builds(engine: str) -> tuple[ReferenceBuild, ...]:
    """Of that engine, today's dialect first."""
    folder = resources.files(engines.__name__) / "reference"
    read = TypeAdapter(ReferenceBuild).validate_json
    found = [read(f.read_bytes()) for f in folder.iterdir() if f.name.endswith(".json")]
    own = [build for build in found if build.engine == engine]
    return tuple(sorted(own, key=lambda b: (b.capabilities.dialect == "draft-flag", b.name)))


def reference_commands(spec: ExperimentSpec, build: ReferenceBuild) -> ReferenceCommands:
    """What each arm would be started with by such a build, each model in a file or folder of its alias.

    A flag in ``engine.extra`` is taken as allowed.
    """
    engine = engines.engine(build.engine)
    argv: dict[str, list[str]] = {}
    refusals: dict[str, list[str]] = {}
    for arm in spec.arms:
        rendered = engine.render(
            spec.engine,
            arm,
            build.capabilities,
            _bindings(spec, arm, build),
            allowed_flags=list(spec.engine.extra),
            threads=spec.engine.threads or THREADS,
        )
        if rendered.refusals:
            refusals[arm.name] = [r.message.removeprefix(f"arm {arm.name!r}: ") for r in rendered.refusals]
        else:
            argv[arm.name] = rendered.argv
    return ReferenceCommands(build, command_differences(spec, argv), argv, refusals)


def _bindings(spec: ExperimentSpec, arm: Arm, build: ReferenceBuild) -> Bindings:
    ending = engines.engine(build.engine).MODEL_ENDING
    draft = f"{arm.draft_model}{ending}" if arm.draft_model else ""
    return Bindings(executable=build.engine, target=f"{spec.target.model}{ending}", draft=draft, port=PORT)
