"""A survey as text: what was measured, what could not be had and why, what to doubt; and two side by side."""

from __future__ import annotations

from collections.abc import Sequence

from speccore.measurement import Maybe, Withheld, value_of
from speccore.metrics import METRICS
from speccore.survey import NO_VERDICT, WINDOW_SPEED, Cell, ComparedCell, Spread, Survey, missing

_HEAD = (
    "work",
    "at once",
    "answered",
    "first token, ms",
    "tokens/s",
    "all, tokens/s",
    "accepted",
    "tokens/pass",
    "cycle, ms",
    "prompt/answer",
)
_LEFT = frozenset({0})


def shown(survey: Survey) -> str:
    server, settings = survey.server, survey.settings
    context = f"{server.slots} slot{'' if server.slots == 1 else 's'} of {server.context} tokens" if server.slots and server.context else ""
    facts = [server.model, server.version, context, _speculation(survey)]
    lines = [
        f"{server.engine} at {server.url} ({server.api}): " + ", ".join(filter(None, facts)),
        f"temperature {settings.temperature:g}, at most {settings.max_tokens} tokens, "
        + ("prefix cache off" if settings.salt == "cache off" else "prompts salted, so that no prefix cache helps"),
        "",
        *_table(_HEAD, [_row(cell) for cell in survey.cells], _LEFT),
        "median [quartiles] over requests",
    ]
    lines += [f"{cell.workload} at {cell.concurrency}: {times} × {said}" for cell in survey.cells for said, times in cell.failures.items()]
    if lacking := missing(survey.cells):
        lines += ["", "not had:", *(f"  {_name(metric)}: {why}" for metric, why in lacking.items())]
    lines += ["", _client(survey.cells)]
    doubts = [*survey.warnings, *(f"{c.workload} at {c.concurrency}: {w}" for c in survey.cells for w in c.warnings)]
    lines += [f"warning: {doubt}" for doubt in dict.fromkeys(doubts)]
    return "\n".join(lines)


def compared(a: str, b: str, cells: Sequence[ComparedCell]) -> str:
    head = ("work", "at once", "", f"A: {a}", f"B: {b}", "B is", "95 % over prompts", "prompts")
    rows = []
    for cell in cells:
        for ratio in cell.ratios:
            metric = METRICS[ratio.metric]
            rows.append(
                (
                    cell.workload,
                    str(cell.concurrency),
                    f"{metric.name}, {metric.unit}",
                    metric.show(ratio.a),
                    metric.show(ratio.b),
                    f"{ratio.ratio:.2f}×",
                    f"{ratio.low:.2f}–{ratio.high:.2f}",
                    str(ratio.n),
                )
            )
    notes = [f"{cell.workload} at {cell.concurrency}: {note}" for cell in cells for note in cell.notes]
    return "\n".join(
        [*_table(head, rows, frozenset({0, 2})), "× above 1: B is faster; medians over the same prompts", *notes, "", NO_VERDICT]
    )


def _speculation(survey: Survey) -> str:
    types = survey.server.speculation
    return "" if types is None else f"speculation {', '.join(types) or 'off'}"


def _row(cell: Cell) -> tuple[str, ...]:
    return (
        cell.workload,
        str(cell.concurrency),
        f"{cell.n_ok}/{cell.n}",
        _spread(cell.numbers["ttft_any_s"], 1000, "{:.1f}"),
        _spread(cell.numbers["decode_tokens_per_s"], 1, "{:.1f}"),
        _one(cell.numbers[WINDOW_SPEED]),
        _share(cell.pooled["acceptance_rate"]),
        _number(cell.pooled["tokens_per_target_pass"], "{:.2f}"),
        _number(cell.pooled["cycle_ms"], "{:.2f}"),
        f"{_median(cell.numbers['prompt_tokens'])}/{_median(cell.numbers['completion_tokens'])}",
    )


def _spread(number: Spread | Withheld, scale: float, form: str) -> str:
    if isinstance(number, Withheld):
        return "–"
    middle, low, high = (form.format(scale * v) for v in (number.median, number.low, number.high))
    return f"{middle} [{low}–{high}]"


def _one(number: Spread | Withheld) -> str:
    return "–" if isinstance(number, Withheld) else f"{number.median:.1f}"


def _median(number: Spread | Withheld) -> str:
    return "–" if isinstance(number, Withheld) else f"{number.median:.0f}"


def _share(number: Maybe) -> str:
    value = value_of(number)
    return "–" if value is None else f"{100 * value:.0f} %"


def _number(number: Maybe, form: str) -> str:
    value = value_of(number)
    return "–" if value is None else form.format(value)


def _name(metric: str) -> str:
    return METRICS[metric].name if metric in METRICS else "speed of all together"


def _client(cells: Sequence[Cell]) -> str:
    """How the client itself did, in one line."""
    stamps = {cell.client.stamps for cell in cells}
    lags = [cell.client.lag_ms_p99 for cell in cells if cell.client.lag_ms_p99 is not None]
    shares = [cell.client.cpu_share for cell in cells if cell.client.cpu_share is not None]
    n_queued, n = sum(c.client.n_queued for c in cells), sum(c.client.n_events for c in cells)
    parts = ["arrivals stamped by the kernel" if stamps == {"kernel"} else "arrivals stamped when they were read"]
    if lags:
        parts.append(f"read {max(lags):.2f} ms later (p99), {n_queued} of {n} events read so late that their arrival is only a bound")
    if shares:
        parts.append(f"{100 * max(shares):.0f} % of a core")
    return "client: " + ", ".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], left: frozenset[int]) -> list[str]:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        "  ".join(text.ljust(width) if i in left else text.rjust(width) for i, (text, width) in enumerate(zip(row, widths))).rstrip()
        for row in (head, *rows)
    ]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return lines
