"""Training steps within a budget of memory: resident bytes above the process's own start and time of a step, each contender in a
fresh process, beside PyTorch's `activation_memory_budget` and MegEngine's sublinear memory and DTR.

    python benchmarks/bench_memory_budget.py [--only TEXT] [--quick]

The budgets: ResNet-50, batch 8, within 400 MiB of states and temporaries; the GPT and ViT-Tiny at half of what their programs need
without one, or at the smallest budget that can be met, where that is more. PyTorch compiles with each of several values of
`torch._functorch.config.activation_memory_budget` (1: recompute nothing). MegEngine runs where MEGENGINE_PYTHON names a Python 3.10
with MegEngine 1.13 (`megengine_peer.py`), with its own network of the same layers.

Out: a table, one line for each contender: peak, time of a step (the least of several), what is computed again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

BUDGETS: dict[str, int | float] = {"ResNet-50": 400 << 20, "GPT": 0.5, "ViT-Tiny": 0.5, "LeNet": 0.8}
CASES = ("ResNet-50", "GPT", "ViT-Tiny")
QUICK = ("LeNet",)
TORCH = (1.0, 0.75, 0.5, 0.25, 0.1)
MEGENGINE = ("plain", "sublinear", "DTR")
STEPS, PATIENCE_S = 5, 1800


def tengen_side(name: str, share: str) -> dict:
    """A traced step; share: of the memory that its program needs, or bytes; "none": no budget."""
    import tengen

    tengen.trace(lambda x: x + 1)(tengen.Tensor([1.0])).numpy()
    from child import forget_peak, resident
    from networks import NETWORKS, Trainer

    network = NETWORKS[name]
    budget = None
    if share != "none":
        budget = int(share) if float(share) > 1 else int(float(share) * _needed(name))
    base = resident("VmRSS")
    forget_peak()
    trainer = Trainer(network, network.batch, traced=True, memory_budget=budget)
    try:
        trainer.step()
    except tengen.base.errors.BudgetError as e:
        smallest = int(str(e).split("the smallest that can is ")[1].split()[0])
        trainer = Trainer(network, network.batch, traced=True, memory_budget=smallest)
        trainer.step()
    tengen.jit.wait_for_compilation()
    found = _steps(lambda: trainer.step().numpy(), base)
    plan = trainer.run.stats()[0].memory
    return found | ({} if plan is None else {"again": plan.recomputed_flops / plan.flops, "planned": plan.bytes, "budget": budget})


def _needed(name: str) -> int:
    """Bytes that a step's program needs without a budget, planned in a process of its own."""
    code = (
        "import compare, tengen; from networks import NETWORKS, Trainer; "
        f"n = NETWORKS[{name!r}]; t = Trainer(n, n.batch, traced=True); print(tengen.memory.plan(t.run, *t.arguments).bytes)"
    )
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, folder])},
                          capture_output=True, text=True, check=True)  # fmt: skip
    return int(done.stdout.split()[-1])


def torch_side(name: str, share: str) -> dict:
    """`torch.compile` with an activation memory budget."""
    import torch
    import torch._functorch.config
    from child import forget_peak, resident
    from networks import NETWORKS
    from peers import TorchTrainer

    torch._functorch.config.activation_memory_budget = float(share)
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

    step()
    forget_peak()
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return {"peak": resident("VmHWM") - base, "seconds": min(times)}


def run(who: str, name: str, how: str) -> dict:
    """What a contender says in a process of its own; {"error": ...} where it fails."""
    script = str(Path(__file__).parent / ("megengine_budget.py" if who == "MegEngine" else "bench_memory_budget.py"))
    python = os.environ["MEGENGINE_PYTHON"] if who == "MegEngine" else sys.executable
    try:
        done = subprocess.run([python, script, "--child", who, name, how], capture_output=True, text=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {PATIENCE_S} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:120]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def contenders(name: str) -> list[tuple[str, str]]:
    """(who, how) for a network."""
    found = [("tengen", "none"), ("tengen", str(BUDGETS[name]))]
    import compare

    if compare.peer("torch"):
        found += [("torch", str(share)) for share in TORCH]
    if "MEGENGINE_PYTHON" in os.environ and name == "ResNet-50":
        found += [("MegEngine", how) for how in MEGENGINE]
    elif "MEGENGINE_PYTHON" not in os.environ:
        print("skipped: MegEngine; set MEGENGINE_PYTHON to a Python 3.10 that has it", flush=True)
    return found


def main() -> None:
    import compare

    args = compare.arguments("memory_budget")
    if os.getloadavg()[0] > 1:
        print(f"others run on this machine (load {os.getloadavg()[0]:.1f}): times mean little, peaks hold", flush=True)
    results = []
    for name in QUICK if args.quick else CASES:
        if args.only and args.only not in name:
            continue
        print(f"{name}\n{'':22}{'peak, MiB':>10}{'step, ms':>10}  computed again", flush=True)
        for who, how in contenders(name):
            for _ in range(2 if who == "tengen" else 1):  # the second process finds its program in the cache
                found = run(who, name, how)
            results.append({"network": name, "who": who, "how": how, **found})
            if "error" in found:
                print(f"  {who + ', ' + how:20}{found['error']}", flush=True)
                continue
            again = f"{found['again']:.1%} of all operations" if "again" in found else ""
            print(f"  {who + ', ' + how:20}{found['peak'] / (1 << 20):10.0f}{1e3 * found['seconds']:10.0f}  {again}", flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    if "--child" in sys.argv:
        who, name, how = sys.argv[2:]
        import compare  # noqa: F401  (it sets the number of threads)

        print(json.dumps({"tengen": tengen_side, "torch": torch_side}[who](name, how)), flush=True)
    else:
        main()
