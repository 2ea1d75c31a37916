"""Measures everything and writes the tables into README.md: `python benchmarks/report.py`.

    python benchmarks/report.py                  # all benchmarks, then the tables
    python benchmarks/report.py eager training   # these, then all tables
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
BENCHES = ["start", "eager", "training", "memory_bound", "contraction", "artifact"]
README = HERE / "README.md"


def run(names: list[str], more: list[str]) -> list[str]:
    """Runs benchmarks; returns those that failed."""
    failed = []
    for name in names:
        print(f"== {name} (load average {os.getloadavg()[0]:.2f})", flush=True)
        if subprocess.run([sys.executable, str(HERE / f"bench_{name}.py"), *more]).returncode:
            failed.append(name)
    return failed


def results(name: str) -> dict | None:
    """What a benchmark measured last, its rows as `Row`s; None before the first time."""
    file = RESULTS / f"{name}.json"
    if not file.exists():
        return None
    data = json.loads(file.read_text())
    data["rows"] = [Row(**r) for r in data["rows"]]
    return data


def tables() -> str:
    """All tables, with where and when they were measured."""
    found = {name: r for name in BENCHES if (r := results(name))}
    parts = []
    machines = {json.dumps({k: v for k, v in r["machine"].items() if k != "date"}): r["machine"] for r in found.values()}
    for m in machines.values():
        parts.append("| | |\n| --- | --- |\n" + "\n".join(f"| {k} | {v} |" for k, v in m.items() if k != "date"))
    for name in BENCHES:
        if name not in found:
            parts.append(f"### {name}\n\nNot measured yet.")
            continue
        r = found[name]
        how = f"`python benchmarks/bench_{name}.py`, {r['machine']['date']}"
        parts.append(f"### {r['title']}\n\n{how}\n\n{markdown(r['rows'])}")
    return "\n\n".join(parts)


def goals() -> str:
    """The goals, reached and not."""
    rows = [(r, d["title"]) for name in BENCHES if (d := results(name)) for r in d["rows"] if r.goal]
    lines = []
    for r, title in rows:
        limit = r.goal.get("text") or f"at most {r.goal['ratio']:.2f} of {r.goal['peer']}'s time"
        if r.error:
            now, verdict = "failed", "not reached"
        elif r.ratios and r.goal.get("peer") in r.ratios:
            now, verdict = f"{r.ratios[r.goal['peer']][1]:.2f}", "reached" if r.reached else "**not reached**"
        elif r.value is not None:
            now, verdict = r.value, "reached" if r.reached else "**not reached**"
        else:
            now, verdict = "", "not compared"
        lines.append(f"| {title} | {r.name} | {limit} | {now} | {verdict} |")
    return "\n".join(["| table | case | goal | now | |", "| --- | --- | --- | --- | --- |", *lines])


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
    args = parser.parse_args()
    if unknown := set(args.names) - set(BENCHES):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    more = [] if args.rounds is None else ["--rounds", str(args.rounds)]
    failed = [] if args.tables else run(args.names or BENCHES, more)
    text = replace(replace(README.read_text(), "goals", goals()), "tables", tables())
    README.write_text(text)
    print(f"wrote {README}")
    if failed:
        sys.exit(f"failed, or failed in part: {', '.join(failed)}")


if __name__ == "__main__":
    main()
