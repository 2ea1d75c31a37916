"""Measures everything and writes the tables into README.md: `python benchmarks/report.py`.

    python benchmarks/report.py                  # all benchmarks, then the tables
    python benchmarks/report.py eager training   # these, then all tables
    python benchmarks/report.py --threads 1      # with one thread, in processor time
    python benchmarks/report.py --tables         # only the tables, from results/*.json
    python benchmarks/report.py --rounds 3       # quickly, to try it out

Each benchmark is a process of its own. One that fails leaves its last results as they were, and is named at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from compare import RESULTS, Row, markdown

HERE = Path(__file__).parent
BENCHES = ["start", "eager", "training", "kernels", "artifact"]
README = HERE / "README.md"
HOW = {2: "2 threads, by the clock", 1: "one thread, in processor time"}


def run(names: list[str], more: list[str], threads: int) -> list[str]:
    """Runs benchmarks; returns those that failed."""
    env = {**os.environ, "BENCH_THREADS": str(threads)}
    failed = []
    for name in names:
        print(f"== {name} (load average {os.getloadavg()[0]:.2f})", flush=True)
        if subprocess.run([sys.executable, str(HERE / f"bench_{name}.py"), *more], env=env).returncode:
            failed.append(name)
    return failed


def results(name: str, threads: int) -> dict | None:
    """What a benchmark measured last, its rows as `Row`s; None before the first time."""
    file = RESULTS / f"{name}.{threads}.json"
    if not file.exists():
        return None
    data = json.loads(file.read_text())
    data["rows"] = [Row(**r) for r in data["rows"]]
    return data


def tables() -> str:
    """All tables, with where and when they were measured."""
    found = {(n, t): r for n in BENCHES for t in HOW if (r := results(n, t))}
    machines = {json.dumps({k: v for k, v in r["machine"].items() if k != "date"}): r["machine"] for r in found.values()}
    parts = []
    for m in machines.values():
        parts.append("\n".join(["| | |", "| --- | --- |", *(f"| {k} | {v} |" for k, v in m.items() if k != "date")]))
    for (name, threads), r in found.items():
        how = f"`bench_{name}.py`, {HOW[threads]}, {r['rounds']} rounds, {r['machine']['date']}"
        parts.append(f"### {r['title']}: {HOW[threads]}\n\n{how}\n\n{markdown(r['rows'])}")
    return "\n\n".join(parts)


def figure(r: Row | None) -> str:
    """What a goal's row says: the figure, and whether it is enough."""
    if r is None:
        return "not measured yet"
    if r.error:
        return "failed: **not reached**"
    against = r.goal.get("against", r.goal.get("peer"))
    if r.value is None and against not in r.ratios:
        return f"no {r.goal['peer']} to compare with"
    now = r.value or f"{r.ratios[against][1]:.2f}"
    return f"{now}: {'reached' if r.reached else '**not reached**'}"


def goals() -> str:
    """The goals, reached and not, with as many threads as there are columns."""
    lines = ["| case | goal | " + " | ".join(HOW.values()) + " |", "| --- |" + " --- |" * (len(HOW) + 1)]
    for name in BENCHES:
        by_threads = {t: {r.name: r for r in d["rows"] if r.goal} if (d := results(name, t)) else {} for t in HOW}
        for case in dict.fromkeys(c for rows in by_threads.values() for c in rows):
            first = next(rows[case] for rows in by_threads.values() if case in rows)
            limit = first.goal.get("text") or f"at most {first.goal['ratio']:.2f} of {first.goal['peer']}'s time"
            lines.append(f"| {case} | {limit} | " + " | ".join(figure(rows.get(case)) for rows in by_threads.values()) + " |")
    return "\n".join(lines)


def replace(text: str, name: str, content: str) -> str:
    """The text with what stands between the marks of `name` replaced. Errors: ValueError without the marks."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    if not pattern.search(text):
        raise ValueError(f"{README} has no {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"which of {', '.join(BENCHES)}; default: all")
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    parser.add_argument("--rounds", type=int, help="rounds of each case")
    parser.add_argument("--threads", type=int, choices=list(HOW), default=2, help="default 2; 1 measures processor time")
    args = parser.parse_args()
    if unknown := set(args.names) - set(BENCHES):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    more = [] if args.rounds is None else ["--rounds", str(args.rounds)]
    failed = [] if args.tables else run(args.names or BENCHES, more, args.threads)
    text = replace(replace(README.read_text(), "goals", goals()), "tables", tables())
    README.write_text(text)
    print(f"wrote {README}")
    if failed:
        sys.exit(f"failed, or failed in part: {', '.join(failed)}")


if __name__ == "__main__":
    main()
