"""The integrity checks that rest on samples of the host: throttling, other programs, memory placed as asked, clock spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .formats import percent
from .integrity import NAMED, failed, not_checked, passed
from .measurement import AttemptMeasurement, Check, HostFacts

MOST_OTHERS = 5.0  # per cent of the device
MOST_SPREAD = 0.03  # of clocks between trials
#: Of the bytes that the engine says it loaded; sizes in its log are rounded.
ROUNDING = 0.01

_MIB = 2**20


def checks(baseline: Sequence[AttemptMeasurement], arm: Sequence[AttemptMeasurement]) -> list[Check]:
    """Of one comparison."""
    both = {a.trial: a.host for a in (*baseline, *arm)}
    return [
        throttling(both),
        other_processes(both),
        memory_placed({a.trial: a.host for a in baseline}, {a.trial: a.host for a in arm}),
        clock_spread(both),
    ]


def throttling(hosts: Mapping[str, HostFacts]) -> Check:
    """Nothing but its power cap holds a GPU's clock down. Of a CPU only how often is known, not for how long: soft."""
    name = "throttling"
    known = {trial: h for trial, h in hosts.items() if h.throttle is not None}
    if not known:
        return not_checked(name, "no device told why its clock was held down")
    held = {trial: h for trial, h in known.items() if h.throttle}
    hard = any(h.device == "gpu" for h in known.values())
    if held:
        trial, first = next(iter(held.items()))
        times = "samples" if first.device == "gpu" else "times"
        said = ", ".join(f"{why.replace('_', ' ')} ({n} {times})" for why, n in sorted((first.throttle or {}).items()))
        sentence = f"the clock was held down in {len(held)} of {len(known)} trials, first {trial}: {said}"
        return failed(name, sentence, hard=hard, trials={t: h.throttle for t, h in list(held.items())[:NAMED]})
    return passed(name, f"nothing but a power cap held the clock down{_in_so_many(known, hosts)}", hard=hard, n=len(known))


def other_processes(hosts: Mapping[str, HostFacts]) -> Check:
    """At most 5 % of the device is others'. A CPU is never the engine's alone: soft."""
    name = "another process on the device"
    known = {trial: h.others_busy_percent for trial, h in hosts.items() if h.others_busy_percent is not None}
    if not known:
        return not_checked(name, "no device told who uses it beside the engine")
    hard = any(h.device == "gpu" for trial, h in hosts.items() if trial in known)
    most = max(known, key=lambda trial: known[trial])
    over = {trial: round(share, 1) for trial, share in known.items() if share > MOST_OTHERS}
    what = "device" if hard else "processors"
    if over:
        pids = hosts[most].other_pids
        who = f" (process {', '.join(map(str, pids[:3]))})" if pids else ""
        sentence = f"others than the engine{who} used {known[most]:.0f} % of the {what} in {most}; over {MOST_OTHERS:.0f} % in {len(over)} of {len(known)} trials"
        return failed(name, sentence, hard=hard, trials=dict(list(over.items())[:NAMED]))
    sentence = f"others than the engine used at most {known[most]:.1f} % of the {what}{_in_so_many(known, hosts)}"
    return passed(name, sentence, hard=hard, most=round(known[most], 2))


def memory_placed(baseline: Mapping[str, HostFacts], arm: Mapping[str, HostFacts]) -> Check:
    """A device holds what the engine says it loaded there, and as many layers as were asked for. In the arm alone it is the
    arm's own cost: soft."""
    name = "memory placed as asked"
    wrong = {trial: why for trial, h in baseline.items() if (why := _misplaced(h))}
    if wrong:
        trial, why = next(iter(wrong.items()))
        return failed(name, f"in the baseline's {trial} {why}", hard=True, trials=dict(list(wrong.items())[:NAMED]))
    wrong = {trial: why for trial, h in arm.items() if (why := _misplaced(h))}
    if wrong:
        trial, why = next(iter(wrong.items()))
        return failed(name, f"in {trial} {why}", trials=dict(list(wrong.items())[:NAMED]))
    hosts = {**baseline, **arm}
    known = {trial: h for trial, h in hosts.items() if _can_tell(h)}
    if not known:
        return not_checked(name, "neither the memory of a device nor the layers on it are known")
    return passed(name, f"what the engine loaded lies where it was asked for{_in_so_many(known, hosts)}", hard=True, n=len(known))


def _can_tell(h: HostFacts) -> bool:
    return (h.loaded_bytes is not None and h.held_bytes is not None) or (h.layers_asked is not None and h.layers_placed is not None)


def _misplaced(h: HostFacts) -> str:
    # where the engine itself is not seen: devices that hold less in all can't hold it
    held = h.held_bytes if h.held_bytes is not None else h.cards_bytes
    if h.loaded_bytes is not None and held is not None and held < (1 - ROUNDING) * h.loaded_bytes:
        return (
            f"memory was spilled: the engine says it loaded {h.loaded_bytes / _MIB:,.0f} MiB on devices, "
            f"which held {held / _MIB:,.0f} MiB of it"
        )
    if h.layers_asked is not None and h.layers_placed is not None:
        placed, total = h.layers_placed
        if placed != min(h.layers_asked, total):
            return f"{placed} of {total} layers lie on devices, asked for were {h.layers_asked}"
    return ""


def clock_spread(hosts: Mapping[str, HostFacts]) -> Check:
    """The trials ran at clocks that differ by at most 3 %."""
    name = "clock spread"
    clocks = {trial: h.clock_mhz for trial, h in hosts.items() if h.clock_mhz}
    if len(clocks) < 2:
        return not_checked(name, "the clock is known of fewer than two trials")
    low, high = min(clocks, key=lambda t: clocks[t]), max(clocks, key=lambda t: clocks[t])
    spread = round(clocks[high] / clocks[low] - 1, 6)
    sentence = f"median clocks of {len(clocks)} trials lie {percent(spread, 1)} apart, from {clocks[low]:,.0f} MHz ({low}) to {clocks[high]:,.0f} MHz ({high})"
    return (failed if spread > MOST_SPREAD else passed)(name, sentence, spread=spread, clocks=clocks)


def _in_so_many(known: Mapping[str, object], hosts: Mapping[str, HostFacts]) -> str:
    return f" in {len(known)} trials" if len(known) == len(hosts) else f" in {len(known)} of {len(hosts)} trials; the others don't tell"
