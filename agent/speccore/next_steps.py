"""What to do after a verdict that is not the last word: by its reason, in words that somebody can act on.

The verdict's sentence says why; this says what now. An arm that is kept, slower or not worth it needs no next step.
"""

from __future__ import annotations

from .errors import SpecWebError
from .measurement import VerdictWord

#: Verdicts that answer the question for good.
FINAL = frozenset({"faster", "slower", "not worth it"})

#: By the integrity check that failed.
AFTER_CHECK = {
    "same comparison key": "run all trials anew on one machine with one engine build, the same files and the same settings",
    "evidence hashes": "restore the file from a copy, or run the experiment again: a changed file proves nothing",
    "counts agree": "open the evidence of the probe that is named; if its log and stream really differ, take another engine build",
    "no cache hits": "switch the prefix cache off, or take prompts that differ from their first words on, and run it again",
    "probe failures": "read the messages of the failed requests in their trial; give them more time or ask for less, and run it again",
    "client lag": "close other programs or leave a core free of engine threads for the client, and run it again",
    "output lengths": "read two answers side by side: an arm that ends early or never ends is not asked the same work; cap the answers or "
    "take temperature 0",
    "drafter alive": "check that the helper belongs to the target (vocabulary, chat template, training), or take another helper",
    "baseline agrees with itself": "take another engine build or host: this one answers wrongly without any speculation",
    "throttling": "cool the machine or lower its power cap, let it rest, and run it again",
    "another process on the device": "end the other process or take another device, and run it again",
    "memory placed as asked": "take a smaller context, a smaller model file or fewer GPU layers, so that all of it fits",
    "context occupied": "ask for another size of occupied context, or take another engine build: this one counts its tokens otherwise",
    "observed concurrency": "ask for fewer requests at once, or give the engine as many slots as are asked for",
    "answers right under load": "serve one request at a time, or take another engine build: under load the baseline itself answers wrongly",
}

_AFTER_REASON = {
    "does not fit": "take a smaller helper, a smaller context or fewer slots",
    "not engaged": "read the engine's log of the first trial, which says why; take a helper with the target's vocabulary, or another build",
    "context": "take the shorter limit if one is named, a smaller helper or a smaller KV type, or require less",
    "concurrency": "take the shorter limit if one is named, a smaller helper or less context for each slot, or require fewer",
    "memory": "take a smaller helper, a smaller context or fewer slots, or require less to stay free",
    "quality": "read the answers that differ before this arm serves anybody, and try another helper or engine build",
    "shorter limit is better": "start it with the shorter limit that is named",
    "too few blocks": "run it again with 5 blocks, the usual number; if trials failed, mend that first",
    "noise-limited": "run it again where less runs beside it (other programs and power saving make noise), or with more blocks where the sentence names how many",
    "floor-limited": "measure on a quieter host, or ask for a larger margin",
    "explains only": "set it beside the arm whose settings it has: the rest of that arm's difference is its drafts'",
    "prompts disagree": "look at the times of each prompt, and ask each kind of work as a point of its own",
    "overloaded": "ask at a lower rate, which this host can keep up with, and run it again",
    "quality not shown": "ask so many more different prompts with a check as the sentence names (a longer workload, more blocks or probes)",
    "requirement not checked": "take an engine build that reports it, or leave the requirement out",
}
_OTHERWISE: dict[VerdictWord, str] = {
    "invalid": "mend what the sentence names, and run it again",
    "not engaged": _AFTER_REASON["not engaged"],
    "disable": "require less, or take a smaller helper",
    "inconclusive": "run it again with more blocks, or on a quieter host",
}


def next_step(word: VerdictWord, reason: str) -> str:
    """Empty where the answer is final. ``reason``: a verdict's, be it a rule's, the failed check's or the error's code."""
    if reason in FINAL:
        return ""
    if word == "invalid":
        return AFTER_CHECK.get(reason) or _remedy(reason) or _OTHERWISE["invalid"]
    return _AFTER_REASON.get(reason) or _OTHERWISE.get(word, "")


def _remedy(code: str, tree: type[SpecWebError] = SpecWebError) -> str:
    """Of the error with this code, as the end of a sentence."""
    for kind in tree.__subclasses__():
        own = kind.remedy if kind.code == code else _remedy(code, kind)
        if own:
            return (own[0].lower() + own[1:]).rstrip(".")
    return ""
