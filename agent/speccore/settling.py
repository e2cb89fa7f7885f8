"""Whether warm-up has settled: the last two windows of requests agree in time per token.

The first requests of an engine pay for compiled kernels, captured graphs and cold caches. A window holds at least three
requests. One at a time, the last six requests are two windows, looked at after each request; several at once, a window is
a batch as large as the point's concurrency, while the workload has the prompts. The same rule stops the warm-up and reads
it again from the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from .measurement import Settling, value_of
from .records import StreamRecord
from .spec import Point, Warmup
from .times import probe_times

WINDOW = 3
#: Fewest requests that make two windows.
LEAST = 2 * WINDOW
#: Relative difference up to which two windows agree.
WITHIN = 0.05
#: What :attr:`Settling.why` says of answers that no pace can be told from, however many are asked.
NO_PACE = "had no time per token"
#: With several requests at once so many windows may be asked, if they are more than ``Warmup.most`` requests.
MOST_BATCHES = 3


def ms_per_token(record: StreamRecord) -> float | None:
    """Decoding time per token of one answer: ms after its first chunk ÷ tokens after it. None where that can't be told."""
    if record.failure:
        return None
    return value_of(probe_times(record, 0).token_latency_ms)


def settling(point: str, answers: Sequence[float | None], window: int) -> Settling:
    """``answers``: ms per token of each request so far, in order of sending; ``window``: requests of one window."""
    n = len(answers)
    if n < 2 * window:
        return Settling(point=point, n=n, settled=False, why=f"{_requests(n)} are less than two windows of {window}")
    windows = [[ms for ms in answers[from_:to] if ms] for from_, to in ((n - 2 * window, n - window), (n - window, n))]
    if unknown := 2 * window - sum(len(w) for w in windows):
        why = f"{unknown} of the last {_requests(2 * window)} {NO_PACE}, since their answers came at once or failed"
        return Settling(point=point, n=n, settled=False, why=why)
    earlier, later = (mean(w) for w in windows)
    settled = max(earlier, later) <= (1 + WITHIN) * min(earlier, later)
    return Settling(point=point, n=n, settled=settled, windows_ms=(earlier, later))


def window_size(point: Point, n_prompts: int) -> int:
    """Requests of one window where ``n_prompts`` may be asked in all: the concurrency, while two windows of it are there."""
    return max(WINDOW, min(point.concurrency, n_prompts // 2))


def wanted(point: Point, warmup: Warmup) -> int:
    """Warm-up requests of a point at the most, if the workload has them."""
    return warmup.most if point.concurrency == 1 else max(warmup.most, MOST_BATCHES * max(WINDOW, point.concurrency))


def shares(points: Sequence[Point], warmup: Warmup, n_prompts: int) -> dict[str, int]:
    """How the points of one workload share its ``n_prompts`` warm-up prompts out: by point's key, 0 for all if they don't do.

    Each gets two windows of three; then two full windows, the largest concurrency first; what is left goes round.
    """
    if n_prompts < LEAST * len(points):
        return dict.fromkeys((p.key for p in points), 0)
    has = {p.key: LEAST for p in points}
    left = n_prompts - LEAST * len(points)
    for point in sorted(points, key=lambda p: -p.concurrency):
        more = min(left, max(0, 2 * point.concurrency - has[point.key]))
        has[point.key] += more
        left -= more
    while left and (hungry := [p for p in points if has[p.key] < wanted(p, warmup)]):
        for point in hungry[:left]:
            has[point.key] += 1
        left -= len(hungry[:left])
    return has


def _requests(n: int) -> str:
    return f"{n} request{'' if n == 1 else 's'}"
