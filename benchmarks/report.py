"""Measures everything and writes the tables into README.md here, and six rows into the repository's: `python benchmarks/report.py`.

    python benchmarks/report.py                  # all benchmarks, then the tables
    python benchmarks/report.py eager training   # these, then all tables
    python benchmarks/report.py --threads 1      # with one thread, in processor time
    python benchmarks/report.py --isa AVX2       # as on a processor without AVX-512, for a column of its own
    python benchmarks/report.py --resume --minutes 8 training   # what is not measured yet, as far as it fits
    python benchmarks/report.py --tables         # only the tables, from results/*/*.json
    python benchmarks/report.py --quick --results DIR   # to try it out: a few cases, the tables and plots into DIR

Each benchmark is a process of its own. One that fails leaves its last results as they were, and is named at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import plots
from compare import RESULTS, Row, duration, kind_of, markdown

HERE = Path(__file__).parent
BENCHES = [
    "inference", "training", "kernels", "first_minute", "eager", "memory", "growth", "tune", "amp", "artifact", "linalg", "control_flow",
    "generate", "decode", "onnx", "int8",
]  # fmt: skip
README = HERE / "README.md"
ROOT_README = HERE.parent / "README.md"
HOW = {2: "2 threads, by the clock", 1: "one thread, in processor time"}
PICTURES = {
    "inference": "Inference: time over Tengen's", "training": "Training step: time over Tengen's", "roofline": "Roofline of the kernels",
    "growth": "Growth: time for a unit of work", "first_minute": "The first minute: what Tengen's time is spent on",
}  # fmt: skip

WITH_ONE_THREAD = ["inference", "training", "kernels", "eager", "linalg"]  # processor time of this process says something there


def run(names: list[str], more: list[str], threads: int, isa: str = "") -> list[str]:
    """Runs benchmarks; returns those that failed."""
    env = {**os.environ, "BENCH_THREADS": str(threads), "BENCH_ISA": isa}
    failed = []
    for name in names:
        print(f"== {name} (load average {os.getloadavg()[0]:.2f})", flush=True)
        start = time.perf_counter()
        if subprocess.run([sys.executable, str(HERE / f"bench_{name}.py"), *more], env=env).returncode:
            failed.append(name)
        print(f"== {name}: {time.perf_counter() - start:.0f} s", flush=True)
    return failed


@dataclass(frozen=True)
class Column:
    """A machine and a number of threads: what has a column in the tables of goals."""

    folder: Path  # results/<machine>
    threads: int

    def results(self, name: str) -> dict | None:
        """What a benchmark measured last, its rows as `Row`s; None before the first time."""
        file = self.folder / f"{name}.{self.threads}.json"
        if not file.exists():
            return None
        data = json.loads(file.read_text())
        data["rows"] = [Row(**r) for r in data["rows"]]
        return data

    def all(self) -> dict[str, dict]:
        """The same of every benchmark that has run."""
        return {n: r for n in BENCHES if (r := self.results(n))}

    @property
    def date(self) -> str:
        """The day of the last measurement."""
        return max(r["machine"]["date"] for r in self.all().values())

    @property
    def heading(self) -> str:
        """For people."""
        kind = kind_of(next(iter(self.all().values()))["machine"]["processor"])
        return kind if self.threads == 2 else f"{kind}, {HOW[self.threads]}"


def measured(base: Path) -> list[Column]:
    """All that anything was measured with, the last first; a processor that was lowered to AVX2 stands behind those as they are."""
    found = [Column(f, t) for f in sorted(base.iterdir()) if f.is_dir() for t in HOW]
    return sorted((c for c in found if c.all()), key=lambda c: (c.threads, "lowered" not in c.heading, c.date), reverse=True)


def tables(base: Path) -> str:
    """All tables, with where and when they were measured."""
    parts = []
    for c in measured(base):
        found = c.all()
        parts.append(f"### {c.heading}")
        machines = {json.dumps({k: v for k, v in r["machine"].items() if k != "date"}): r["machine"] for r in found.values()}
        for m in machines.values():
            parts.append("\n".join(["| | |", "| --- | --- |", *(f"| {k} | {v} |" for k, v in m.items() if k != "date")]))
        for name, r in found.items():
            how = f"`bench_{name}.py`, {HOW[c.threads]}, {r['rounds']} rounds, {r['machine']['date']}"
            parts.append(f"#### {r['title']}: {c.heading}\n\n{how}\n\n{markdown(r['rows'])}")
    return "\n\n".join(parts)


def pictures(base: Path) -> str:
    """The plots, machine by machine."""
    parts = []
    for c in (c for c in measured(base) if c.threads == 2):
        parts.append(f"### {c.heading}: plots")
        files = [(n, plots.PLOTS / c.folder.name / f"{n}{kind}") for n in PICTURES for kind in (".svg", ".png")]
        parts.append("\n".join(f"![{PICTURES[n]}: {c.heading}](plots/{c.folder.name}/{f.name})" for n, f in files if f.exists()))
    return "\n\n".join(parts)


FRONT = [  # of the README of the repository: what is asked most, with a case that misses its goal
    ("inference", "ResNet-50, batch 1"), ("inference", "MobileNetV2, batch 1"), ("inference", "GPT, batch 8"),
    ("training", "ResNet-50, batch 8"), ("training", "GPT, batch 8"), ("training", "LSTM, batch 32"),
]  # fmt: skip


def front(base: Path) -> str:
    """Six cases on each machine that measured them with two threads: Tengen's time, and the ratio to the best peer's."""
    columns = [c for c in measured(base) if c.threads == 2]
    shown = {bench for bench, _ in FRONT}
    dates = [max((r["machine"]["date"] for n, r in c.all().items() if n in shown), default="") for c in columns]
    heads = [f"{c.heading}, {date}".rstrip(", ") for c, date in zip(columns, dates)]
    text = ["| | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(columns)]
    for bench, case in FRONT:
        found = [next((r for r in (c.results(bench) or {"rows": []})["rows"] if r.name == case), None) for c in columns]
        text.append(f"| {bench}: {case} | " + " | ".join(map(against_best, found)) + " |")
    return "\n".join(text)


def against_best(r: Row | None) -> str:
    """Tengen's time and the median ratio to the peer that took the least."""
    if r is None or r.error or not r.ratios:
        return "not measured"
    best = min(r.ratios, key=r.seconds.__getitem__)
    return f"{duration(r.seconds['tengen'])} ({r.ratios[best][1]:.2f} of {best})"


def peer(name: str) -> str:
    """Whom a goal names."""
    return {"fastest": "the best peer", "torch, best": "PyTorch"}.get(name, name)


def figure(r: Row | None) -> str:
    """What a goal's row says: the figure, and whether it is enough."""
    if r is None:
        return "not measured yet"
    if r.error:
        return "failed: **not reached**"
    against = r.goal.get("against", r.goal.get("peer"))
    if r.value is None and "text" in r.goal:
        now = duration(r.seconds["tengen"])
        return f"{now}: {'reached' if r.reached else '**not reached**'}"
    if r.value is None and against not in r.ratios:
        return f"no {r.goal['peer']} to compare with"
    now = r.value or f"{r.ratios[against][1]:.2f} ({against})"
    return f"{now}: {'reached' if r.reached else '**not reached**'}"


def summary(base: Path) -> str:
    """How many goals each benchmark reached."""
    columns = measured(base)
    text = ["| benchmark | " + " | ".join(c.heading for c in columns) + " |", "| --- |" + " --- |" * len(columns)]
    for name in BENCHES:
        found = [c.results(name) for c in columns]
        if any(found):
            rows = [[r for r in d["rows"] if r.goal or r.error] if d else [] for d in found]
            counts = [f"{sum(bool(r.reached) for r in rs)} of {len(rs)}" if rs else "" for rs in rows]
            text.append(f"| {name} | " + " | ".join(counts) + " |")
    return "\n".join(text)


def judged(name: str, columns: list[Column]) -> dict[str, dict[Column, Row]]:
    """A benchmark's rows with a goal: case -> where it was measured -> row."""
    cases: dict[str, dict[Column, Row]] = {}
    for c in columns:
        data = c.results(name)
        for r in data["rows"] if data else []:
            if r.goal:
                cases.setdefault(r.name, {})[c] = r
    return cases


def lines(name: str, cases: dict[str, dict[Column, Row]], columns: list[Column]) -> list[str]:
    """A line for each case: its goal, and the figure in each column."""
    text = []
    for case, rows in cases.items():
        first = next(iter(rows.values()))
        what = "memory" if first.unit == "peak" else "time"
        limit = first.goal.get("text") or f"at most {first.goal['ratio']:.2f} of {peer(first.goal['peer'])}'s {what}"
        text.append(f"| {name} | {case} | {limit} | " + " | ".join(figure(rows.get(c)) for c in columns) + " |")
    return text


def head(columns: list[Column]) -> list[str]:
    """The first lines of a table of goals."""
    return ["| benchmark | case | goal | " + " | ".join(c.heading for c in columns) + " |", "| --- |" + " --- |" * (len(columns) + 2)]


def goals(base: Path) -> str:
    """The goals, reached and not; those of the kernels and of growth are in their tables."""
    columns = measured(base)
    names = (n for n in BENCHES if n not in ("kernels", "growth"))
    return "\n".join(head(columns) + [line for n in names for line in lines(n, judged(n, columns), columns)])


def missed(base: Path) -> str:
    """Which goals a machine does not reach, with two threads; of the kernels, how many, and those far behind a peer."""
    columns = [c for c in measured(base) if c.threads == 2]
    text = head(columns)
    for name in (n for n in BENCHES if n != "kernels"):
        cases = {n: rows for n, rows in judged(name, columns).items() if not all(r.reached for r in rows.values())}
        text += lines(name, cases, columns)
    for c in columns:
        if data := c.results("kernels"):
            text += ["", f"{c.heading}: {kernels(data)}"]
    return "\n".join(text)


def kernels(data: dict) -> str:
    """How many of the single kernels reach what is asked of them, and which are far behind a peer."""
    rows = [r for r in data["rows"] if r.ratios]
    ratio = {r.name: r.ratios[r.goal["against"] if r.goal else min(r.ratios, key=r.seconds.__getitem__)][1] for r in rows}
    behind = sorted((n for n in ratio if ratio[n] > 1 / 0.9), key=lambda n: -ratio[n])
    asked = [r for r in data["rows"] if r.goal and r.goal.get("roof")]
    text = (f"of {len(rows)} single kernels {len(rows) - len(behind)} reach 0.9 of the best peer's speed; {len(asked)} are asked "
            f"for 85 % of a roof too, and {sum(bool(r.reached) for r in asked)} of them reach both. ")  # fmt: skip
    return text + f"Behind a peer: {'; '.join(f'{n} ({ratio[n]:.2f} of its time)' for n in behind) or 'none'}."


def replace(text: str, name: str, content: str) -> str:
    """A page with what stands between the marks of `name` replaced. Errors: ValueError without the marks."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    if not pattern.search(text):
        raise ValueError(f"the page has no {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", text)


def write(results: Path) -> None:
    """Writes the tables and the plots of a folder of results: into README.md here where it is that of this folder, and six rows into
    the repository's; else beside them."""
    ours = results == RESULTS
    for c in (c for c in measured(results) if c.threads == 2):
        plots.draw(c.folder, plots.PLOTS / c.folder.name if ours else c.folder)
    text = README.read_text()
    for name, content in (("summary", summary), ("goals", goals), ("missed", missed), ("plots", pictures), ("tables", tables)):
        text = replace(text, name, content(results))
    out = README if ours else results / README.name
    out.write_text(text)
    print(f"wrote {out}")
    if ours:
        ROOT_README.write_text(replace(ROOT_README.read_text(), "measured", front(RESULTS)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"which of {', '.join(BENCHES)}; default: all")
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    parser.add_argument("--rounds", type=int, help="rounds of each case at most")
    parser.add_argument("--quick", action="store_true", help="a few cases and rounds; needs --results")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder of the machines' folders; another than results/ keeps README.md"
    )
    parser.add_argument("--isa", choices=["AVX2"], default="", help="all contenders take the processor for one without AVX-512")
    parser.add_argument("--resume", action="store_true", help="keep the cases that the results have, and measure the others")
    parser.add_argument("--minutes", type=float, help="of each benchmark, which begins no case after them")
    parser.add_argument("--threads", type=int, choices=list(HOW), default=2, help="default 2; 1 measures processor time")
    args = parser.parse_args()
    if unknown := set(args.names) - set(BENCHES):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    ours = args.results == RESULTS
    if args.quick and ours:
        parser.error("--quick needs --results FOLDER: its figures are not worth keeping")
    more = ["--results", str(args.results.resolve())] + ([] if args.rounds is None else ["--rounds", str(args.rounds)])
    more += ["--quick"] if args.quick else []
    more += ["--resume"] if args.resume else []
    more += [] if args.minutes is None else ["--minutes", str(args.minutes)]
    names = args.names or (BENCHES if args.threads > 1 else WITH_ONE_THREAD)
    failed = [] if args.tables else run(names, more, args.threads, args.isa)
    write(args.results)
    if failed:
        sys.exit(f"failed, or failed in part: {', '.join(failed)}")


if __name__ == "__main__":
    main()
