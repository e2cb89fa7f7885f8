"""The agent's decisions, pure: from its state and what happened to the next state and what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from speccore.protocol import Finished, JobOffer, Looked, PollReply

#: Heartbeat while a job runs, and waits after polls that failed.
RUNNING_POLL_S = 2.0
_BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
_SOON_S = 0.2

EXIT_OK, EXIT_FAILED = 0, 3


@dataclass(frozen=True)
class Held:
    """The job that runs now. ``stopping``: why it is being stopped, '' while it isn't. ``resting``: it pauses between trials."""

    job_id: str
    lease: int
    stopping: Literal["", "cancelled", "quitting"] = ""
    resting: bool = False


@dataclass(frozen=True)
class State:
    """``finished`` is repeated in each poll until acknowledged. ``once``: take at most one job, then quit."""

    job: Held | None = None
    finished: tuple[Finished, ...] = ()
    quitting: bool = False
    exit_code: int = EXIT_OK
    exit_message: str = ""
    n_failures: int = 0
    draining: bool = False
    once: bool = False
    taken: bool = False  # a job was taken (only of interest with ``once``)


@dataclass(frozen=True)
class Polled:
    """``delivering``: results of an earlier job are still on their way, and until they are there no other begins."""

    reply: PollReply
    delivering: bool = False


@dataclass(frozen=True)
class PollFailed:
    """``final``: no later poll can succeed (the token is refused)."""

    message: str
    final: bool = False


@dataclass(frozen=True)
class JobEnded:
    finished: Finished


@dataclass(frozen=True)
class QuitAsked:
    pass


Event = Polled | PollFailed | JobEnded | QuitAsked


@dataclass(frozen=True)
class StartJob:
    offer: JobOffer


@dataclass(frozen=True)
class StopJob:
    job_id: str


@dataclass(frozen=True)
class RestJob:
    """Pause between trials, or go on."""

    job_id: str
    resting: bool


@dataclass(frozen=True)
class TellLooked:
    """What the server's early looks say of the job."""

    word: Looked


@dataclass(frozen=True)
class SendInventory:
    pass


@dataclass(frozen=True)
class PollIn:
    """``jitter``: share by which the wait may differ, so that hosts don't poll in step."""

    seconds: float
    jitter: float = 0.0


@dataclass(frozen=True)
class Quit:
    exit_code: int
    message: str = ""


Effect = StartJob | StopJob | RestJob | TellLooked | SendInventory | PollIn | Quit


def step(state: State, event: Event) -> tuple[State, list[Effect]]:
    match event:
        case Polled(reply, delivering):
            return _polled(state, reply, delivering)
        case PollFailed(message, final):
            return _poll_failed(state, message, final)
        case JobEnded(finished):
            return _job_ended(state, finished)
        case QuitAsked():
            return _quit(state, EXIT_OK, "")


def _polled(state: State, reply: PollReply, delivering: bool) -> tuple[State, list[Effect]]:
    finished = tuple(f for f in state.finished if f.job_id not in reply.acknowledged)
    state = replace(state, finished=finished, n_failures=0, draining=reply.drain)
    effects: list[Effect] = []
    if reply.send_inventory:
        effects.append(SendInventory())
    if state.job and state.job.job_id in reply.cancel and not state.job.stopping:
        state = replace(state, job=replace(state.job, stopping="cancelled"))
        effects.append(StopJob(state.job.job_id))  # type: ignore[union-attr]
    if state.job and (state.job.job_id in reply.pause) != state.job.resting:
        state = replace(state, job=replace(state.job, resting=not state.job.resting))
        effects.append(RestJob(state.job.job_id, state.job.resting))  # type: ignore[union-attr]
    if state.job and reply.looked and reply.looked.job_id == state.job.job_id:
        effects.append(TellLooked(reply.looked))
    if reply.job and not delivering and _may_take(state, reply.job):
        state = replace(state, job=Held(reply.job.job_id, reply.job.lease), taken=True)
        effects.append(StartJob(reply.job))
    idle = state.job is None and not state.finished and not delivering
    if state.once and idle and (state.taken or (reply.job is None and not reply.send_inventory)):
        return state, [*effects, Quit(EXIT_OK, "" if state.taken else "no job waits for this host")]
    return state, [*effects, _next_poll(state, reply, delivering)]


def _may_take(state: State, offer: JobOffer) -> bool:
    busy = state.job is not None or state.quitting or state.draining or (state.once and state.taken)
    # a server that offers what we have finished has not read our last word yet
    return not busy and all(f.job_id != offer.job_id for f in state.finished)


def _next_poll(state: State, reply: PollReply, delivering: bool) -> PollIn:
    if reply.send_inventory or (state.finished and not state.job):
        return PollIn(_SOON_S)
    if state.job or delivering:
        return PollIn(min(reply.poll_after_s, RUNNING_POLL_S))
    return PollIn(reply.poll_after_s, jitter=0.2)


def _poll_failed(state: State, message: str, final: bool) -> tuple[State, list[Effect]]:
    n = state.n_failures
    again = PollIn(_BACKOFF_S[min(n, len(_BACKOFF_S) - 1)], jitter=0.3)
    state = replace(state, n_failures=n + 1)
    if final:
        state, effects = _quit(state, EXIT_FAILED, message)
        return state, effects if state.job is None else [*effects, again]  # the job takes a while to stop
    return state, [again]


def _job_ended(state: State, finished: Finished) -> tuple[State, list[Effect]]:
    # A job that the agent's own end stopped is not over: the server offers it again when the agent is back.
    interrupted = state.job is not None and state.job.stopping == "quitting" and finished.outcome == "cancelled"
    words = state.finished if interrupted else (*state.finished, finished)
    state = replace(state, job=None, finished=words)
    if state.quitting:
        return state, [Quit(state.exit_code, state.exit_message)]
    return state, [PollIn(0.0)]


def _quit(state: State, exit_code: int, message: str) -> tuple[State, list[Effect]]:
    state = replace(state, quitting=True, exit_code=exit_code, exit_message=message)
    if state.job is None:
        return state, [Quit(exit_code, message)]
    if state.job.stopping:
        return state, []
    return replace(state, job=replace(state.job, stopping="quitting")), [StopJob(state.job.job_id)]
