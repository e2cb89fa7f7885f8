"""The error tree: each failure has a code, somebody to blame, whether a retry can help, and a remedy for a person.

::

    SpecWebError
    ├── SpecError            blame "spec": what was asked for can't be done
    │   ├── UnknownModel · NoHostCanRun · ArmNotSupported · FlagNotAllowed
    │   ├── VocabMismatch · HeadMissing · ModelFormat · FlagRefused · ThinkingNotPossible
    ├── HostError            blame "host": the machine can't do it now
    │   ├── PortUnavailable · DiskFull · ModelFileMissing · BuildChanged · PlanDiffers
    │   ├── HostLost · HostRevoked · AgentKeepsDying · BlockKeepsTearing
    ├── EngineError          blame "engine": the engine misbehaved
    │   ├── EngineExitedAtStart · EngineNotHealthy · EngineKilledAtStart · EngineDied · EngineOutOfMemory
    │   ├── EngineLoadedOther · ProbeFailed · ProbeStalled
    └── ServerError          blame "server": the service refused or broke
        ├── HashMismatch · BlobTooLarge · StaleLease · NotAllowed · NotPossible · ProtocolTooOld

A person reads ``message`` and ``remedy``; a program reads ``code``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

Blame = Literal["spec", "host", "engine", "server"]


class ErrorBody(BaseModel):
    """An error as it travels and as it is stored. Unknown fields of a newer peer are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    code: str
    message: str
    blame: Blame
    retry: bool = False
    remedy: str = ""
    details: dict[str, Any] = {}


class SpecWebError(Exception):
    """Base of every failure that a person may meet. ``details`` holds JSON-able values only."""

    code: ClassVar[str] = "error"
    blame: ClassVar[Blame] = "server"
    retry: ClassVar[bool] = False
    remedy: ClassVar[str] = ""

    def __init__(self, message: str, *, remedy: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy_text = self.remedy if remedy is None else remedy
        self.details = details

    def body(self) -> ErrorBody:
        return ErrorBody(
            code=self.code,
            message=self.message,
            blame=self.blame,
            retry=self.retry,
            remedy=self.remedy_text,
            details=self.details,
        )


class SpecError(SpecWebError):
    code = "spec_invalid"
    blame = "spec"
    remedy = "Correct the experiment and submit it again."


class UnknownModel(SpecError):
    code = "unknown_model"
    remedy = "Name a model that a host advertises, by its alias or hash (see the Hosts page)."


class NoHostCanRun(SpecError):
    code = "no_host_can_run"
    remedy = "Change what the message names, or add a host that can run it."


class ArmNotSupported(SpecError):
    code = "arm_not_supported"
    remedy = "Choose a speculation mode that this engine build offers, or another build."


class FlagNotAllowed(SpecError):
    code = "flag_not_allowed"
    remedy = "Remove the flag, or ask the host's owner to add it to allowed_flags in the agent's configuration."


class VocabMismatch(SpecError):
    code = "vocab_mismatch"
    remedy = "Choose a helper model with the target's vocabulary."


class HeadMissing(SpecError):
    code = "head_missing"
    remedy = "The target has no head of the kind that this mode needs: take a model file that has one, or another mode."


class ModelFormat(SpecError):
    code = "model_format"
    remedy = "Name a model in the form that the engine reads: hosts list it under Models."


class FlagRefused(SpecError):
    code = "flag_refused"
    remedy = "The engine build doesn't take a flag or its value: correct what the message names, or choose another build."


class ThinkingNotPossible(SpecError):
    code = "thinking_not_possible"
    remedy = "Leave the point's thinking unset, or take a model whose chat template knows it."


class HostError(SpecWebError):
    code = "host_error"
    blame = "host"
    retry = True
    remedy = "Look at the agent's log on the host."


class PortUnavailable(HostError):
    code = "port_unavailable"
    remedy = "Another program took the port; the trial is tried again on another one."


class DiskFull(HostError):
    code = "disk_full"
    remedy = "Free space on the disk of the agent's state folder; it goes on by itself, and what was measured is kept."


class ModelFileMissing(HostError):
    code = "model_file_missing"
    retry = False
    remedy = "Put the model file back, or restart the agent so that it advertises what is there."


class BuildChanged(HostError):
    code = "build_changed"
    retry = False
    remedy = "Put the build back and run the experiment again, or restart the agent so that it advertises the build that is there."


class PlanDiffers(HostError):
    code = "command_differs"
    retry = False
    remedy = "Agent and server render different commands for an arm: bring both to the same release."


class HostLost(HostError):
    code = "host_lost"
    retry = False
    remedy = "See why the host went silent, then submit the experiment again."


class HostRevoked(HostError):
    code = "host_revoked"
    retry = False
    remedy = "Ask a maintainer of the team for a new enrolment code and enrol again."


class AgentKeepsDying(HostError):
    code = "agent_keeps_dying"
    retry = False
    remedy = "See in the agent's log on the host why it ends, then retry the job."


class BlockKeepsTearing(HostError):
    code = "block_keeps_tearing"
    retry = False
    remedy = "See what interrupts the host (restarts, changed engine builds or models), then retry the job; finished blocks are kept."


class EngineError(SpecWebError):
    code = "engine_error"
    blame = "engine"
    remedy = "Read the server log of the attempt."


class EngineExitedAtStart(EngineError):
    code = "engine_exited_at_start"
    remedy = "The reason stands in the server log; correct the setting that it names."


class EngineNotHealthy(EngineError):
    code = "engine_not_healthy"
    retry = True
    remedy = "The engine did not become healthy in time: raise start_timeout_s or look at the server log."


class EngineDied(EngineError):
    code = "engine_died"
    retry = True
    remedy = "The engine stopped while it was measured; the last lines of its log say why."


class EngineOutOfMemory(EngineError):
    code = "engine_out_of_memory"
    remedy = "Use a smaller context, fewer slots or a smaller helper model."


class EngineKilledAtStart(EngineError):
    """Signal 9, no word in the log, and no sign that the kernel ran out of memory: somebody's hand, which does not come twice."""

    code = "engine_killed_at_start"
    retry = True
    remedy = "Something on the host killed the engine; if it was for want of memory, use a smaller context, fewer slots or a smaller helper model."


class EngineLoadedOther(EngineError):
    code = "engine_loaded_other"
    remedy = "The engine reports another model or context than asked for; look at /props in the evidence."


class ProbeFailed(EngineError):
    code = "probe_failed"


class ProbeStalled(EngineError):
    code = "probe_stalled"
    retry = True
    remedy = "No bytes came for longer than the probe's time limit; the engine was stopped."


class ServerError(SpecWebError):
    code = "server_error"
    blame = "server"
    retry = True


class HashMismatch(ServerError):
    code = "hash_mismatch"
    remedy = "The bytes were damaged on the way; send them again."


class BlobTooLarge(ServerError):
    code = "blob_too_large"
    retry = False
    remedy = "Lower the engine's log_verbosity, or ask the service's owner to raise SPECWEB_MAX_BLOB_BYTES."


class StaleLease(ServerError):
    code = "stale_lease"
    retry = False
    remedy = "The job was given away meanwhile; what was measured is kept as evidence and not counted."


class NotAllowed(ServerError):
    code = "not_allowed"
    retry = False


class NotPossible(ServerError):
    """What was asked for can't be done in the state that a thing is in."""

    code = "not_possible"
    retry = False


class ProtocolTooOld(ServerError):
    code = "protocol_not_supported"
    retry = False
    remedy = "Update the agent: pip install --upgrade specweb-agent"
