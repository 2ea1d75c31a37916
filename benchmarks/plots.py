"""Pictures of the results: time against peers, the roofline, growth curves, what a first result's time is spent on.

In: a machine's folder of results. Out: its folder of pictures. Needs matplotlib: `report.py` draws all.
"""

from __future__ import annotations

import json
from pathlib import Path

from compare import Row

PLOTS = Path(__file__).parent / "plots"
COLORS = {
    "tengen": "#d1495b", "onnxruntime": "#30638e", "openvino": "#003d5b", "torch": "#edae49", "torch, channels-last": "#c98b1e",
    "torch.compile": "#8c5e0a", "jax": "#00798c", "MegEngine": "#8d96a3",
}  # fmt: skip


def rows_of(folder: Path, bench: str, threads: int) -> list[Row]:
    """The rows without errors; none where the benchmark has not run."""
    file = folder / f"{bench}.{threads}.json"
    rows = [Row(**r) for r in json.loads(file.read_text())["rows"]] if file.exists() else []
    return [r for r in rows if not r.error and r.seconds]


def against_peers(rows: list[Row], title: str, file: Path) -> None:
    """Bars: each contender's time over Tengen's; lower than 1 is faster than Tengen."""
    import matplotlib.pyplot as plt

    rows = [r for r in rows if not r.name.endswith(", eager")]
    names = list(dict.fromkeys(who for r in rows for who in r.seconds))
    figure, axes = plt.subplots(figsize=(1.6 + 1.15 * len(rows), 4))
    width = 0.8 / len(names)
    for i, who in enumerate(names):
        at = [j + (i - (len(names) - 1) / 2) * width for j, r in enumerate(rows) if who in r.seconds]
        high = [r.seconds[who] / r.seconds["tengen"] for r in rows if who in r.seconds]
        axes.bar(at, high, width, label=who, color=COLORS.get(who))
    axes.axhline(1, color=COLORS["tengen"], linewidth=0.8)
    axes.set_xticks(range(len(rows)), [r.name.replace(", ", "\n") for r in rows], fontsize=8)
    axes.set_ylim(0, min(6, axes.get_ylim()[1]))  # a peer that takes longer than that is cut off
    axes.set_ylabel("time over Tengen's (lower is faster)")
    axes.set_title(title)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    _save(figure, file)


def roofline(rows: list[Row], file: Path) -> None:
    """Operations a second over operations a byte, below the machine's two roofs."""
    import matplotlib.pyplot as plt
    import numpy as np

    rows = [r for r in rows if r.intensity and not r.name.endswith(", eager")]
    peak, copy = (max((r.roof for r in rows if r.unit == unit and r.roof), default=None) for unit in ("FLOP", "B"))
    if not peak or not copy:
        return
    figure, axes = plt.subplots(figsize=(8, 5))
    x = np.geomspace(min(r.intensity for r in rows) / 2, max(r.intensity for r in rows) * 2, 200)
    axes.plot(x, np.minimum(peak, x * copy) / 1e9, color="black", label="roof: multiply-adds, copy")
    for who, mark in (("torch", "x"), ("tengen", "o")):
        points = [
            (r.intensity, r.work * (r.intensity if r.unit == "B" else 1) / r.seconds[who]) for r in rows if who in r.seconds
        ]
        axes.scatter(*zip(*((i, rate / 1e9) for i, rate in points)), s=16, marker=mark, color=COLORS[who], label=who)
    axes.set(xscale="log", yscale="log", xlabel="operations for each byte that must move", ylabel="GFLOP/s", title="Roofline")
    axes.legend(fontsize=8)
    _save(figure, file)


def growth(rows: list[Row], file: Path) -> None:
    """Time for a unit of work over what grows, in the unit's time at the first point."""
    import matplotlib.pyplot as plt

    sweeps: dict[str, list[Row]] = {}
    for r in rows:
        sweeps.setdefault(r.name.rpartition(":")[0], []).append(r)
    if not sweeps:
        return
    columns = 3
    lines = -(-len(sweeps) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(4 * columns, 3 * lines), squeeze=False)
    for axes in grid.flat[len(sweeps) :]:
        axes.set_visible(False)
    for axes, (name, points) in zip(grid.flat, sweeps.items()):
        for who in ("torch", "tengen"):
            line = [(int(r.name.rpartition(":")[2]), r.seconds[who] / r.work) for r in points if who in r.seconds]
            if line:
                axes.plot(*zip(*((n, 1e9 * s) for n, s in line)), marker="o", markersize=3, label=who, color=COLORS[who])
        axes.set(xscale="log", title=name, ylabel="ns for a unit of work")
        axes.set_ylim(bottom=0)
        axes.set_xticks([int(r.name.rpartition(":")[2]) for r in points], [r.name.rpartition(":")[2].strip() for r in points])
        axes.minorticks_off()
        axes.legend(fontsize=8)
    _save(figure, file)


def first_minute(rows: list[Row], file: Path) -> None:
    """Bars: Tengen's seconds until a first result, with the shares of what they were spent on; beside them the peers' seconds."""
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "first_minute"  # the same figures are the same file
    tasks = [r.name.removesuffix(", empty caches") for r in rows if r.causes and r.name.endswith(", empty caches")]
    if not tasks:
        return
    figure, grid = plt.subplots(1, 2, figsize=(15, 1.5 + 0.5 * len(tasks)), sharey=True)
    for axes, state in zip(grid, ("empty caches", "warm caches")):
        found = {r.name.removesuffix(f", {state}"): r for r in rows if r.name.endswith(f", {state}")}
        lines = [found[t] for t in tasks]
        left = [0.0] * len(lines)
        for i, cause in enumerate(lines[0].causes):
            wide = [r.causes[cause] for r in lines]
            axes.barh(range(len(lines)), wide, 0.6, left, label=cause, color=plt.get_cmap("tab20")(i))
            left = [a + b for a, b in zip(left, wide)]
        for who in dict.fromkeys(w for r in lines for w in r.seconds if w != "tengen"):
            at = [(r.seconds[who], i) for i, r in enumerate(lines) if who in r.seconds]
            axes.scatter(*zip(*at), s=60, marker="|", linewidth=2.5, label=who, color=COLORS.get(who))
        axes.set_yticks(range(len(lines)), tasks, fontsize=8)
        axes.set_xlabel("seconds from the start of the process")
        axes.set_title(f"{state}: Tengen's time by cause, peers' as marks")
    grid[0].invert_yaxis()
    grid[1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    _save(figure, file)


def _save(figure, file: Path) -> None:
    import matplotlib.pyplot as plt

    figure.tight_layout()
    file.parent.mkdir(exist_ok=True, parents=True)
    figure.savefig(file, dpi=110, metadata={"Date": None} if file.suffix == ".svg" else None)
    plt.close(figure)
    print(f"wrote {file}")


def draw(results: Path, folder: Path, threads: int = 2) -> list[Path]:
    """All pictures that the results have figures for; their files. Nothing, said aloud, without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print("skipped: the plots need matplotlib")
        return []
    matplotlib.use("Agg")
    for bench, title in (("inference", "Inference, float32"), ("training", "Training step, float32")):
        if rows := rows_of(results, bench, threads):
            against_peers(rows, title, folder / f"{bench}.png")
    roofline(rows_of(results, "kernels", threads), folder / "roofline.png")
    growth(rows_of(results, "growth", threads), folder / "growth.png")
    first_minute(rows_of(results, "first_minute", threads), folder / "first_minute.svg")
    return sorted([*folder.glob("*.png"), *folder.glob("*.svg")])
