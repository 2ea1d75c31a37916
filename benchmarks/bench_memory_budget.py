"""Training steps within a budget of memory: resident bytes above the process's own start and time of a step, each contender in a
fresh process, beside PyTorch's `activation_memory_budget` and MegEngine's sublinear memory and DTR.

    python benchmarks/bench_memory_budget.py [--rows NETWORK] [--who CONTENDER] [--quick] [--minutes N] [--patience S] [--again] [--file JSON]

The budgets: ResNet-50, batch 8, within 376 MiB of states and temporaries, so that the whole process grows by 400; the GPT and ViT-Tiny at
half of what their programs need without one, or at the smallest budget that can be met, where that is more; "disk": values may also be
written to a file. PyTorch compiles with each of several values of `torch._functorch.config.activation_memory_budget` (1: recompute
nothing), of which the fastest that needs no more memory than Tengen's stands beside it.
MegEngine runs where MEGENGINE_PYTHON names a Python 3.10 with MegEngine 1.13
(`megengine_budget.py`), with its own network of the same layers.

With BENCH_THREADS=1 the time of a step is processor time, which other programs on the machine disturb little.

Each figure is written to the file when it is there, and what the file has is not measured again: a run that was stopped, or that
begins nothing more after so many minutes, is taken up by the next one, which says what is left.

Out: a table, one line for each contender: peak, time of a step (the least of several), what is computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BUDGETS: dict[str, int | float] = {"ResNet-50": 376 << 20, "GPT": 0.5, "ViT-Tiny": 0.5, "LeNet": 0.8}
CASES = ("ResNet-50", "GPT", "ViT-Tiny")
QUICK = ("LeNet",)
TORCH = (1.0, 0.75, 0.5, 0.25, 0.1)
MEGENGINE = ("plain", "sublinear", "DTR")
OF_MEGENGINE = ("ResNet-50", "LeNet")  # the networks that it has
STEPS, PATIENCE_S = 5, 520
SAME = 1.02  # times the peak: no more memory, but for what peaks differ by from run to run


# ---- one contender, in a process of its own ----------------------------------------------------------------------------------


def tengen_side(name: str, how: str) -> dict:
    """A traced step; how: "none", or a part of the memory that its program needs, or bytes, with ", disk" where files may be used."""
    import tengen

    tengen.trace(lambda x: x + 1)(tengen.Tensor([1.0])).numpy()
    from child import forget_peak, resident
    from networks import NETWORKS, Trainer

    network, (share, *disk) = NETWORKS[name], how.split(", ")
    offload = "disk" if disk else None
    budget = None if share == "none" else _elsewhere("tengen-budget", name, how)["budget"]
    base = resident("VmRSS")
    forget_peak()
    trainer = Trainer(network, network.batch, traced=True, memory_budget=budget, offload=offload)
    trainer.step()
    tengen.jit.wait_for_compilation()
    found = _steps(lambda: trainer.step().numpy(), base)
    plan = trainer.run.stats()[0].memory
    if plan is None:
        return found
    return found | {"again": plan.recomputed_flops / plan.flops, "planned": plan.bytes, "budget": budget, "written": plan.written}


def tengen_budget(name: str, how: str) -> dict:
    """The budget in bytes: the smallest that can be met, where the one that is asked for cannot."""
    from networks import NETWORKS, Trainer

    import tengen

    network, (share, *disk) = NETWORKS[name], how.split(", ")
    plain = Trainer(network, network.batch, traced=True)
    needed = tengen.memory.plan(plain.run, *plain.arguments).bytes
    budget = int(float(share)) if float(share) > 1 else int(float(share) * needed)
    try:
        t = Trainer(network, network.batch, traced=True, memory_budget=budget, offload="disk" if disk else None)
        t.run.trace(*t.arguments)
    except tengen.base.errors.BudgetError as e:
        return {"budget": int(str(e).split("the smallest that can is ")[1].split()[0]), "needed": needed}
    return {"budget": budget, "needed": needed}


def _elsewhere(who: str, name: str, how: str) -> dict:
    """What `--child` says in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--child", who, name, how], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def torch_side(name: str, how: str) -> dict:
    """`torch.compile` with an activation memory budget."""
    import torch
    import torch._functorch.config
    from child import forget_peak, resident
    from networks import NETWORKS
    from peers import TorchTrainer

    torch._functorch.config.activation_memory_budget = float(how)
    network = NETWORKS[name]
    torch.compile(lambda x: x + 1)(torch.ones(3))
    base = resident("VmRSS")
    forget_peak()
    trainer = TorchTrainer(network, network.torch(None, training=True), network.batch, "compile")
    trainer.step()
    return _steps(lambda: float(trainer.step()), base)


def _steps(step, base: int) -> dict:
    """The peak above the base and the time of a step, of several after the first."""
    from child import forget_peak, resident
    from compare import clock

    step()
    forget_peak()
    times = []
    for _ in range(STEPS):
        start = clock()
        step()
        times.append(clock() - start)
    return {"peak": resident("VmHWM") - base, "seconds": min(times)}


CHILDREN = {"tengen": tengen_side, "tengen-budget": tengen_budget, "torch": torch_side}


# ---- all of them ---------------------------------------------------------------------------------------------------------


def run(who: str, name: str, how: str, patience_s: float) -> dict:
    """What a contender says in a process of its own; {"error": ...} where it fails."""
    script = str(HERE / ("megengine_budget.py" if who == "MegEngine" else "bench_memory_budget.py"))
    python = os.environ["MEGENGINE_PYTHON"] if who == "MegEngine" else sys.executable
    try:
        done = subprocess.run([python, script, "--child", who, name, how], capture_output=True, text=True, timeout=patience_s)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {patience_s:.0f} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:120]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def contenders(name: str) -> list[tuple[str, str]]:
    """(who, how) for a network."""
    import compare

    share = str(BUDGETS[name])
    found = [("tengen", "none"), ("tengen", share), ("tengen", f"{share}, disk")]
    if compare.peer("torch"):
        found += [("torch", str(share)) for share in TORCH]
    if "MEGENGINE_PYTHON" in os.environ and name in OF_MEGENGINE:
        found += [("MegEngine", how) for how in MEGENGINE]
    elif "MEGENGINE_PYTHON" not in os.environ:
        print("skipped: MegEngine; set MEGENGINE_PYTHON to a Python 3.10 that has it", flush=True)
    return found


def line(found: dict) -> str:
    """A contender's line of the table."""
    told = f"  {found['who'] + ', ' + found['how']:24}"
    if "error" in found:
        return told + found["error"]
    again = f"{found['again']:.1%} of all operations" if "again" in found else ""
    again += f", {found['written'] / (1 << 20):.0f} MiB to disk" if found.get("written") else ""
    return f"{told}{found['peak'] / (1 << 20):10.0f}{1e3 * found['seconds']:10.0f}  {again}"


def beside(rows: list[dict]) -> list[str]:
    """For each of Tengen's lines with a budget, PyTorch's fastest step that needs no more memory."""
    torch, told = [r for r in rows if r["who"] == "torch" and "error" not in r], []
    for r in (r for r in rows if r["who"] == "tengen" and r["how"] != "none" and "error" not in r):
        best = min((t for t in torch if t["peak"] <= SAME * r["peak"]), key=lambda t: t["seconds"], default=None)
        what = "none needs so little" if best is None else f"{best['how']}: {r['seconds'] / best['seconds']:.2f} of its time"
        told.append(f"  {r['how']} beside PyTorch at no more memory: {what}" if torch else "")
    return [t for t in told if t]


def options() -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--quick", action="store_true", help="the smallest network alone: to try it out")
    p.add_argument("--rows", default="", help="the networks whose name contains this")
    p.add_argument("--who", default="", help="the contenders whose name contains this, as 'torch' or 'tengen, none'")
    p.add_argument("--minutes", type=float, default=float("inf"), help="after which nothing more is begun")
    p.add_argument("--patience", type=float, default=PATIENCE_S, help=f"seconds after which a contender is stopped; default {PATIENCE_S}")
    p.add_argument("--again", action="store_true", help="measure also what the file has")
    p.add_argument("--file", type=Path, help="of the figures; default: memory_budget.THREADS.json in this machine's folder of results/")
    return p.parse_args()


def main() -> None:
    import compare

    args, start, left = options(), time.monotonic(), []
    file = args.file or compare.RESULTS / compare.folder_of(compare.machine()["processor"]) / f"memory_budget.{compare.THREADS}.json"
    known = {(r["network"], r["who"], r["how"]): r for r in (json.loads(file.read_text()) if file.exists() else [])}
    if os.getloadavg()[0] > 1 and compare.THREADS > 1:
        print(f"others run on this machine (load {os.getloadavg()[0]:.1f}): times mean little, peaks hold", flush=True)
    for name in (n for n in (QUICK if args.quick else CASES) if args.rows in n):
        print(f"{name}\n{'':26}{'peak, MiB':>10}{'step, ms':>10}  computed again", flush=True)
        rows = []
        for who, how in contenders(name):
            key = name, who, how
            if args.who in f"{who}, {how}" and (args.again or key not in known or "error" in known[key]):
                spent = lambda: time.monotonic() - start
                found = {} if spent() > 60 * args.minutes else run(who, name, how, args.patience)
                if who == "tengen" and found:  # the second process finds its program in the cache
                    found = {} if spent() > 60 * args.minutes else run(who, name, how, args.patience)
                if not found:
                    left.append(f"{name}: {who}, {how}")
                    continue
                known[key] = {"network": name, "who": who, "how": how, **found}
                file.parent.mkdir(parents=True, exist_ok=True)
                part = file.with_suffix(".part")
                part.write_text(json.dumps(list(known.values()), indent=1) + "\n")
                part.replace(file)
            if key in known:
                rows.append(known[key])
                print(line(known[key]), flush=True)
        print("\n".join(beside(rows)), flush=True)
    if left:
        print(f"{len(left)} left: {'; '.join(left)}; help: the same call once more")


if __name__ == "__main__":
    if "--child" in sys.argv:
        who, name, how = sys.argv[2:]
        import compare  # noqa: F401  (it sets the number of threads)

        print(json.dumps(CHILDREN[who](name, how)), flush=True)
    else:
        main()
