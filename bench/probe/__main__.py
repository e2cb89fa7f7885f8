"""``make bench-probe``: runs the clients one after the other on the same scenarios and prints what each cost, hit and missed."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from .peers import CACHE, CLIENTS, DRIVERS, WITH_TOKENIZERS, Call, Client, NotThere, apart_cpu_s
from .running import ClientFailed, Usage, replay, run
from .scenarios import Scenario, scenarios
from .scoring import Score, cpu_per_1k_tokens, score
from .table import HEAD, Run, line, markdown

TIMEOUT_S = 120.0


def tokenizer() -> Path | None:
    """The folder with the tokenizer that peers are given, made by the first of their environments that can."""
    folder = CACHE / "tokenizer-1"
    for venv in WITH_TOKENIZERS:
        if (folder / "book.txt").exists():
            return folder
        if venv.python.exists():
            with tempfile.TemporaryDirectory() as home:
                run([venv.python, DRIVERS / "make_tokenizer.py", folder], Path(home) / "log", env={"HOME": home}, timeout_s=300)
    return folder if (folder / "book.txt").exists() else None


def play(client: Client, scenario: Scenario, folder: Path, made: Path | None) -> tuple[Usage, float, Score]:
    """One run: usage, CPU of it that isn't the client's, and the score. Raises ClientFailed, NotThere."""
    folder.mkdir(parents=True)
    pieces = made / "pieces.json" if made else None
    with replay(scenario, folder, pieces) as serving:
        call = Call(serving.port, scenario, folder, made)
        usage = run(client.argv(call), folder / "client.log", env=call.environment(), timeout_s=TIMEOUT_S)
    try:
        requests = client.requests(call)
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise ClientFailed(f"its result is not there or not understood: {type(error).__name__}: {error}") from error
    return usage, apart_cpu_s(call), score(requests, serving.answers)


def bench(client: Client, wanted: list[Scenario], folder: Path, made: Path | None) -> list[Run]:
    """All scenarios of one client. The short run is made once for each number of streams."""
    version = client.version()
    short: dict[tuple[int, float], tuple[float, int]] = {}
    runs = []
    for i, scenario in enumerate(wanted):
        key = scenario.streams, scenario.rate
        try:
            if key not in short:
                usage, apart, _ = play(client, scenario.short, folder / f"{i}-short", made)
                short[key] = usage.cpu_s - apart, scenario.short.true_tokens
            usage, apart, result = play(client, scenario, folder / str(i), made)
        except ClientFailed as error:
            print(f"{client.name}, {scenario.name}: failed: {error}", flush=True)
            continue
        cpu = cpu_per_1k_tokens(usage.cpu_s - apart, result.tokens_true, *short[key])
        runs.append(Run(client.name, version, scenario, cpu, usage.cpu_s - apart, result))
        print(line(runs[-1]), flush=True)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.probe", description=__doc__)
    names = [c.name for c in CLIENTS]
    parser.add_argument("--clients", default="", help=f"by comma; all of {', '.join(names)} if empty")
    parser.add_argument("--streams", default="", help="only scenarios with so many streams, by comma")
    parser.add_argument("--per-event", default="", help="only scenarios with so many tokens an event, by comma")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a stream at the rate")
    parser.add_argument("--full-speed-events", type=int, default=40_000, help="of the one stream as fast as it goes")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--markdown", type=Path, help="file for the table as it stands in docs/measurement.md")
    parser.add_argument("--details", type=Path, help="JSON file with everything that is known of each run")
    args = parser.parse_args()
    chosen = [n.strip() for n in args.clients.split(",") if n.strip()] or names
    if unknown := set(chosen) - set(names):
        parser.error(f"--clients: {', '.join(sorted(unknown))} is none of {', '.join(names)}")
    streams, per_event = ({int(n) for n in text.split(",") if n} for text in (args.streams, args.per_event))
    wanted = [
        s
        for s in scenarios(args.seconds, args.full_speed_events)
        if (not streams or s.streams in streams) and (not per_event or s.tokens_per_event in per_event)
    ]
    if not wanted:
        parser.error("--streams and --per-event leave no scenario")
    runs = []
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="specweb-bench-probe-") as scratch:
        for client in (c for c in CLIENTS if c.name in chosen):
            try:
                client.version()  # installs it, so that the tokenizer can be made with what it brings
                runs += bench(client, wanted, Path(scratch) / client.name.replace(" ", "-"), tokenizer())
            except NotThere as error:
                print(f"{client.name}: not there: {error}", flush=True)
    if args.out:
        args.out.write_text(json.dumps({"runs": [r.as_json() for r in runs]}, indent=1))
    if args.markdown:
        args.markdown.write_text(markdown(runs))
    if args.details:
        args.details.write_text(json.dumps([asdict(r) for r in runs], indent=1))
    sys.exit(0 if runs else 1)


if __name__ == "__main__":
    main()
