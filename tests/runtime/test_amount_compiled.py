"""How much is compiled for some first steps, in numbers that no machine's minute changes: modules, and characters of LLVM IR.

Each case is a process of its own with an empty cache, on a machine taken for an x86-64-v3 with two threads. Where a figure grows, what
grew is worth it and the limit is set anew, or it is mended.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from exhaustive import but

from tengen.codegen.targets import Target

# case -> (modules, characters of IR in thousands): the limits, a tenth above what was measured
LIMITS = {
    "ops": (37, 506),  # measured: 34 modules, 460 thousand characters
    "mlp": (25, 375),  # 23, 340
    "lenet": (48, 787),  # 44, 715
    "resnet": (85, 1545),  # 77, 1,404
    "resnet_traced": (11, 1810),  # 10, 1,646: products with four positions of a sum in a loop's body
}

CHILD = """
    import json, sys
    import numpy as np
    import tengen.compiler.plans
    import tengen.functional as F
    import tengen.module as M
    from tengen import Tensor, models, trace
    from tengen.autodiff import GradManager
    from tengen.base.config import config
    from tengen.models.resnet import BasicBlock, ResNet
    from tengen.optimizer import SGD
    from tengen.runtime import compile as compiler

    tengen.compiler.plans.HOT_AFTER_S = float("inf")  # no time of this machine makes a program
    sizes, compiled = [], compiler._optimised

    def counted(text, target, level):
        sizes.append(len(text))
        return compiled(text, target, level)

    compiler._optimised = counted
    rng = np.random.default_rng(0)
    tensor = lambda *shape: Tensor(rng.normal(size=shape).astype("float32"))

    def ops():
        a, b, x, w = tensor(64, 96), tensor(64, 96), tensor(2, 8, 16, 16), tensor(16, 8, 3, 3)
        calls = [
            lambda: a + b, lambda: a * b, lambda: a / b, lambda: F.exp(a), lambda: F.sum(a, 1), lambda: F.mean(a), lambda: F.max(a, 1),
            lambda: F.softmax(a, 1), lambda: F.matmul(a, b.T), lambda: F.conv2d(x, w, padding=1), lambda: F.relu(a), lambda: F.gelu(a),
            lambda: F.layer_norm(a, (96,)), lambda: F.concat([a, b], 0), lambda: F.copy(a.T) + 0, lambda: a[Tensor([1, 3, 5])],
            lambda: F.where(a > 0, a, b), lambda: F.sort(a)[0], lambda: F.argmax(a, 1), lambda: F.pow(F.abs(a), b),
        ]
        for call in calls:
            call()

    def step(net, x):
        manager, optimizer = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)
        with manager:
            manager.backward(F.loss.cross_entropy(net(x), Tensor(np.arange(x.shape[0], dtype="int32"))))
        optimizer.step().clear_grad()

    def traced():
        config.threads = 1  # all of it is compiled here
        net, x, label = ResNet(BasicBlock, (1, 1), num_classes=5), tensor(2, 3, 32, 32), Tensor(np.arange(2, dtype="int32"))
        manager, optimizer = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

        @trace
        def step(x, label):
            with manager:
                manager.backward(F.loss.cross_entropy(net(x), label))
            optimizer.step().clear_grad()

        step(x, label)

    cases = {
        "resnet_traced": traced,
        "ops": ops,
        "mlp": lambda: step(M.Sequential(M.Linear(64, 32), M.ReLU(), M.Linear(32, 10)), tensor(8, 64)),
        "lenet": lambda: step(models.lenet(), tensor(2, 1, 32, 32)),
        "resnet": lambda: step(ResNet(BasicBlock, (1, 1), num_classes=5), tensor(2, 3, 32, 32)),
    }
    cases[sys.argv[1]]()
    print(json.dumps([len(sizes), sum(sizes)]))
"""


@but(every=3)
@pytest.mark.parametrize("case", LIMITS)
def test_amount_of_code(case, tmp_path):
    if why := Target.named("x86-64-v3").why_not_here():
        pytest.skip(f"the figures are of x86-64-v3: {why}")
    here = {"TENGEN_PROCESSOR": "x86-64-v3", "TENGEN_TARGET": "native", "TENGEN_NUM_THREADS": "2", "TENGEN_CACHE": "1"}
    environment = {**os.environ, **here, "TENGEN_QUICK_COMPILE": "only", "TENGEN_CACHE_DIR": str(tmp_path / "cache")}
    child = [sys.executable, "-c", textwrap.dedent(CHILD), case]
    done = subprocess.run(child, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    modules, characters = json.loads(done.stdout)
    most_modules, most_thousands = LIMITS[case]
    assert modules <= most_modules, f"{characters} characters"
    assert characters <= 1000 * most_thousands, f"{modules} modules"
