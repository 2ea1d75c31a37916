"""The bits of a few hundred programs are those in `digests.json`, on whatever processor this runs and with whatever NumPy.

Where they differ on purpose, `python tests/numerics/digests.py --write` writes the file anew, and the change needs a line under "Bits"
in the changelog. See `digests.py`.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from digests import FILE, computed, differences, digest, groups, is_ours, of_op, op_cases, shipped
from exact import Exact, coarse
from exhaustive import but, exhaustive
from needs import needs
from which_code import GOOD, using

from tengen import set_threads
from tengen.base.config import config
from tengen.codegen.targets import Target
from tengen.deploy import compile_model, run_artifact
from tengen.ops.define import REGISTRY

KEPT = json.loads(FILE.read_text())
GROUPS = sorted({name.split()[0] for name in groups()} - {"op"})
LETTERS = ["a-b", "c", "d-f", "g-l", "m-o", "p-r", "s", "t-z"]


def of(group: str, names) -> dict[str, str]:
    """The entries of a group's names."""
    return {n: d for n, d in names.items() if n.split()[0] == group}


def check(group: str, chosen=lambda name: True) -> None:
    got = of(group, computed(lambda g: g.split()[0] == group and chosen(g)))
    compare(got, {n: d for n, d in of(group, KEPT).items() if chosen(n)})


def compare(got: dict[str, str], want: dict[str, str]) -> None:
    found = differences(got, want)
    assert got and not found, (
        f"{len(found)} of {len(want)} digests differ from {FILE.name}:\n" + "\n".join(found[:20])
        + "\nWhere bits are meant to change: python tests/numerics/digests.py --write, and a line under Bits in CHANGELOG.md"
    )  # fmt: skip


@but(every=2)
@pytest.mark.parametrize("letters", LETTERS)
def test_ops(letters):
    first, last = letters[0], letters[-1]
    check("op", lambda name: first <= name.split()[1][0] <= last)


@exhaustive
@pytest.mark.skipif(Target.host().architecture.linking is None, reason="there is no quick code for this architecture")
def test_ops_in_good_code():
    """Every eighth op in float32, with its gradient: those of quick code are above. `.ci/run` computes everything here once more in good code;
    `test_artifacts.py` has good code of every op in one of its dtypes, held to quick code."""
    cases = [case for case in op_cases() if case[0].endswith(" 0")][::8]
    with using(GOOD):
        got = {name: digest(out) for case in cases for name, out in of_op(*case, in_float32_alone=True)}
    chosen = {name for name, _, _ in cases}
    compare(got, {n: d for n, d in of("op", KEPT).items() if " ".join(n.split()[1:3]) in chosen and n.split()[3] == "float32"})


@but(these=[group for group in GROUPS if group != "network"])  # `test_another_number_of_threads` has it
@pytest.mark.parametrize("group", GROUPS)
def test_programs(group):
    check(group)


@but(these=["network"])
@pytest.mark.parametrize("group", ["network", "optimizer", "random"])
def test_another_number_of_threads(group):
    """The programs are those of `test_programs`: nothing is compiled here."""
    set_threads(2 if config.threads == 1 else 1)
    check(group)


@but(these=["lenet"])
@pytest.mark.parametrize("name", ["gpt", "lenet"])
def test_networks_in_good_code(name):
    """One of attention and one of convolutions; `.ci/run` asks for good code of all."""
    with using(GOOD):
        check("network", lambda g: g.split()[1] == name)


@needs("ziglang")
@pytest.mark.parametrize("target", [pytest.param(t, marks=needs(n)) for t, n in (("x86-64-v3", "x86-64-v3"), ("aarch64", "qemu"))])
def test_compiled_artifacts(target, tmp_path):
    run, x = shipped()
    run(x)
    run.dump(tmp_path / "net.tgn")
    got = run_artifact(compile_model(tmp_path / "net.tgn", target, tmp_path, "net"), [x])
    assert digest(got) == KEPT["artifact lenet"]


# ---- the file, and what it is made of -------------------------------------------------------------------------------------


def test_the_file_is_readable_and_covers_every_op():
    assert FILE.read_text().splitlines()[1:-1] == [
        f'"{n}": "{d}"' + ("," if i + 1 < len(KEPT) else "") for i, (n, d) in enumerate(sorted(KEPT.items()))
    ]
    assert all(n.split()[0] in ("op", *GROUPS) for n in KEPT) and len(set(KEPT.values())) > 0.8 * len(KEPT)
    there = {n.split()[1] for n in of("op", KEPT)}
    counted = lambda op: op.kind != "shorthand" and is_ours(op) and not (op.has_bodies or op.rules.effect)  # loops and branches are programs
    without = {name for name, op in REGISTRY.items() if "." not in name and counted(op)} - there
    assert not without, f"no digest of {sorted(without)}"
    assert all(any(lo <= n[0] <= hi for lo, hi in ((s[0], s[-1]) for s in LETTERS)) for n, _, _ in op_cases())


def test_a_digest_tells_one_bit_and_no_nan_from_another():
    x = np.array([1.0, 2.0, 0.0, np.nan], np.float32)
    y, z, n, m = x.copy(), x.copy(), x.copy(), x.copy()
    y.view(np.uint32)[1] ^= 1
    z[2] = -0.0
    n.view(np.uint32)[3] ^= 1 << 31
    m.view(np.uint32)[3] ^= 1
    assert digest([x]) == digest([n]) == digest([m])
    assert len({digest(a) for a in ([x], [y], [z], [x[:3]], [x.reshape(2, 2)], [x.view(np.int32)], [x, x])}) == 7
    changed = {**KEPT, "op add 0 float32": "0" * 16}
    assert differences(KEPT, changed) == [f"op add 0 float32: {KEPT['op add 0 float32']}, the file has {'0' * 16}"]
    assert "not computed" in differences({}, {"a": ""})[0] and "not in the file" in differences({"a": ""}, {})[0]


def test_the_numbers_do_not_depend_on_numpy():
    """SplitMix64's first numbers from 0, as in Vigna's reference code; the rest is scaling by powers of two."""
    assert [hex(b) for b in Exact(0).bits(3)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]
    rng = Exact(1)
    for a in (rng.random((3, 4)), rng.standard_normal(50), rng.uniform(-3, 5, 9), rng.normal(2, 4, 5)):
        assert (a * 2**20 == np.round(a * 2**20)).all()
    assert sorted(rng.permutation(20)) == list(range(20)) and set(rng.integers(-2, 3, 200)) == {-2, -1, 0, 1, 2}
    x = np.array([1 / 3, -1e-30, np.inf, 0.0, -0.0])
    nudged = x.copy()
    nudged[:2] = np.nextafter(x[:2], 1)
    assert coarse(x).tobytes() == coarse(nudged).tobytes() and np.allclose(coarse(x)[:2], x[:2], rtol=2.0**-20, atol=0)
