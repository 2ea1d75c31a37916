"""Random programs of the subset that `script` compiles, and what they give as plain Python, traced and scripted.

In: a seed. Out: the source of a function of a vector, a matrix, a number in a tensor and a Python number; with tuples, tensors that are
changed in place, loops over ranges, tensors, `zip`, `map` and `enumerate`, `while`, `break`, `continue`, `else` of loops, early returns,
functions inside, lists and dicts that are carried or grow, tensors with other names in them, values that begin as None, divisions of ints,
`in`, `match`, `:=`, `del`, random numbers, `with`, and annotations.
`differs` compares these; `further` a script, its file, a trace around it, `vmap` of it, and gradients.
As a program (``python tests/jit/random_scripts.py SECONDS FIRST_SEED``) it runs them until the time is over.
"""

from __future__ import annotations

import linecache
import os
import random
import sys
import tempfile
import time
import traceback

import numpy as np

import tengen
import tengen.functional as F
from tengen import Tensor, load_graph, script, trace
from tengen.autodiff import grad, no_grad, vmap
from tengen.base.errors import ScriptError, TengenError


class Program:
    """The source of a random function `f(v, m, s, n)`, in `text`."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.names = {"v": ["v"], "s": ["s"], "i": ["n"]}  # that have a value here, by kind
        self.count, self.loops, self.left = 0, [], self.r.randint(2, 6)
        self.helper = self.r.random() < 0.4
        self.line(0, "def f(v, m, s, n=2):")
        if self.helper:
            self.line(1, "def helper(a, b=1.5):")
            self.line(2, f"if {self.r.choice(['a.sum() > 1', 'a.max() < b', 'b > 2'])}:")
            self.line(3, f"return {self.r.choice(['a * b', 'a - 1', 'F.tanh(a)'])}")
            self.line(2, f"return {self.r.choice(['a + b', '-a', 'F.abs(a) * 0.5'])}")
        for kind, k in (("s", 2), ("v", 2), ("i", 1)):
            for _ in range(self.r.randint(1, k)):
                self.assign(1, kind, self.fresh(kind))
        self.block(1, 0)
        self.line(1, self.result())
        self.text = "\n".join(self.lines) + "\n"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def pick(self, kind: str) -> str:
        return self.r.choice(self.names[kind])

    def result(self) -> str:
        some = [self.pick("v"), self.pick("s"), self.names["v"][-1], self.names["s"][-1], self.names["i"][-1]]
        return f"return {some[0]}, {some[1]}, {some[2]}, {some[3]}, {some[4]} + 0"

    # -- expressions -------------------------------------------------------------------------------------------------------
    def expression(self, kind: str, depth: int = 2) -> str:
        r = self.r
        e = lambda k: self.expression(k, depth - 1)
        if kind == "i":
            i = self.pick("i")
            return r.choice([
                i, str(r.randint(-2, 3)), f"{i} + 1", f"{i} - {r.randint(1, 2)}", f"{i} // {r.choice([2, 3, -2])}",
                f"{i} % {r.choice([2, 3, -2])}", f"-{i}", f"max({i}, {r.randint(-1, 2)})", f"abs({i})", f"divmod({i}, 3)[{r.randint(0, 1)}]",
                f"(7 // {i} if {i} else 7)",
            ])  # fmt: skip
        if depth <= 0 or r.random() < 0.2:
            return self.pick(kind) if r.random() < 0.8 or kind == "v" else str(r.choice([0.5, 1.0, -2.0, 3.0]))
        both = [
            lambda: f"({e(kind)} {r.choice('+-')} {e(kind)})", lambda: f"F.tanh({e(kind)})", lambda: f"({e(kind)} * {r.choice([0.5, -1])})",
            lambda: f"F.maximum({self.pick(kind)}, {e(kind)})", lambda: f"F.clip({e(kind)} * {e(kind)}, -8, 8)",
            lambda: f"(-{self.pick(kind)})", lambda: f"({e(kind)} if {self.condition(1)} else {self.pick(kind)} * 1)",
            lambda: f"({self.pick(kind)} + {self.pick('i')})",
        ]  # fmt: skip
        if self.helper:
            both.append(lambda: f"helper({self.pick(kind)} + s * 0{r.choice(['', ', 0.5', ', b=3.0'])})")
        if kind == "s":
            both += [lambda: f"{self.pick('v')}.sum()", lambda: f"{self.pick('v')}.max()", lambda: f"{self.pick('v')}[{r.randint(-2, 3)}]"]
            both += [lambda: f"m[{r.randint(0, 2)}, {r.randint(0, 3)}]", lambda: f"m[{r.randint(0, 2)}].mean()"]
        else:
            both += [lambda: f"m[{r.randint(0, 2)}]", lambda: "m.sum(0) * 0.25"]
            both += [lambda: f"F.where({self.pick('v')} > {e('s')}, {self.pick('v')}, {e('v')})"]
        return r.choice(both)()

    def condition(self, depth: int = 2) -> str:
        r, s = self.r, lambda: self.expression("s", 1)
        one = [
            lambda: f"{self.pick('s')} {r.choice(['<', '>', '<=', '>='])} {s()}",
            lambda: f"{self.pick('v')}.sum() > {r.choice([0, 1.5, -2])}", lambda: f"({self.pick('v')} > 0).{r.choice(['all', 'any'])}()",
            lambda: f"-1 < {self.pick('s')} < {r.choice(['1', '4'])}",
            lambda: f"{self.pick('i')} {r.choice(['<', '==', '!='])} {r.randint(-1, 4)}",
            lambda: f"{self.pick('i')} {r.choice(['in', 'not in'])} ({r.randint(-1, 1)}, {r.randint(0, 3)})",
        ]  # fmt: skip
        if depth > 1 and r.random() < 0.3:
            both = f"{self.condition(1)} {r.choice(['and', 'or'])} {self.condition(1)}"
            return both if r.random() < 0.7 else f"not {self.pick('s')} > 0"
        return r.choice(one)()

    # -- statements --------------------------------------------------------------------------------------------------------
    def assign(self, depth: int, kind: str, name: str) -> None:
        value = self.expression(kind)
        if kind == "s":
            value += " + m[0, 0] * 0"  # a tensor, also where only numbers were drawn
        if kind == "v" and value in self.names["v"]:
            value += " * 1"  # no second name of a tensor
        self.line(depth, f"{name} = {value}")
        if name not in self.names[kind]:
            self.names[kind].append(name)

    def block(self, depth: int, inside: int) -> None:
        before, at = {k: list(v) for k, v in self.names.items()}, len(self.lines)
        for _ in range(self.r.randint(1, 3) if inside else self.left):
            self.statement(depth, inside)
        if len(self.lines) == at:
            self.line(depth, "pass")
        if inside:
            self.names = before

    def statement(self, depth: int, inside: int) -> None:
        r = self.r
        deep = [self.if_, self.for_range, self.for_rows, self.while_, self.none, self.held, self.with_, self.named]
        deep += [self.match_, self.else_, self.assigned, self.grown, self.mixed, self.mixed, self.tupled]
        deep = deep if inside < 3 else []
        flat = [self.plain] * 4 + [self.augmented, self.swap, self.item, self.drawn, self.sliced] + ([self.leave] * 2 if inside else [])
        r.choice(flat + deep * (2 if inside < 2 else 1))(depth, inside)

    def plain(self, depth: int, inside: int) -> None:
        kind = self.r.choice("ssvvi")
        name = self.pick(kind) if self.r.random() < 0.7 else self.fresh(kind)
        self.assign(depth, kind, name if name != "n" else self.fresh("i"))

    def augmented(self, depth: int, inside: int) -> None:
        kind = self.r.choice("svi")
        name = self.pick(kind)
        if name in ("v", "s"):
            return self.plain(depth, inside)
        value = self.r.choice(["1", "2", "-1"]) if kind == "i" else self.expression(self.r.choice(["s", kind]), 1)
        self.line(depth, f"{name} {self.r.choice(['+=', '-='])} {value}")

    def swap(self, depth: int, inside: int) -> None:
        kind = self.r.choice("sv")
        a, b = self.pick(kind), self.pick(kind)
        if a != b:
            self.line(depth, f"{a}, {b} = {b} * 0.5, {a} + 1")

    def item(self, depth: int, inside: int) -> None:
        name = self.pick("v")
        if name == "v":
            return self.plain(depth, inside)
        self.line(depth, f"{name}[{self.r.randint(0, 3)}] = {self.expression('s', 1)}")

    def leave(self, depth: int, inside: int) -> None:
        if self.loops and self.r.random() < 0.8:
            self.line(depth, f"if {self.condition()}:")
            self.line(depth + 1, self.r.choice(["break", "continue", "break", self.result()]))
        else:
            self.line(depth, f"if {self.condition()}:")
            self.line(depth + 1, self.result())

    def if_(self, depth: int, inside: int) -> None:
        self.line(depth, f"if {self.condition()}:")
        self.block(depth + 1, inside + 1)
        if self.r.random() < 0.3:
            self.line(depth, f"elif {self.condition()}:")
            self.block(depth + 1, inside + 1)
        if self.r.random() < 0.5:
            self.line(depth, "else:")
            self.block(depth + 1, inside + 1)

    def loop(self, depth: int, inside: int, head: str, **new: str) -> None:
        before = {k: list(v) for k, v in self.names.items()}
        self.line(depth, head)
        for name, kind in new.items():
            self.names[kind].append(name)
        self.loops.append(head)
        self.block(depth + 1, inside + 1)
        self.loops.pop()
        self.names = before

    def for_range(self, depth: int, inside: int) -> None:
        i = self.fresh("i")
        bounds = self.r.choice(["3", "n", "1, 4", "4, 0, -2", "0"])
        self.loop(depth, inside, f"for {i} in range({bounds}):", **{i: "i"})

    def for_rows(self, depth: int, inside: int) -> None:
        a, b, i = self.fresh("v"), self.fresh("s"), self.fresh("i")
        head, new = self.r.choice([
            (f"for {a} in m:", {a: "v"}), (f"for {b} in {self.pick('v')}:", {b: "s"}), (f"for {i}, {a} in enumerate(m):", {i: "i", a: "v"}),
            (f"for {a}, {b} in zip(m, {self.pick('v')}):", {a: "v", b: "s"}), (f"for {a} in reversed(m):", {a: "v"}),
        ])  # fmt: skip
        if self.r.random() < 0.25 and a in new:
            some = self.fresh("list")
            self.line(depth, f"{some} = []")
            self.loop(depth, inside, head, **new)
            self.line(depth, f"for {a} in m:")
            self.line(depth + 1, f"{some}.append({a}.sum() * 0.5)")
            out = self.fresh("s")
            self.line(depth, f"{out} = F.stack({some}).sum() + len({some})")
            self.names["s"].append(out)
        else:
            self.loop(depth, inside, head, **new)

    def while_(self, depth: int, inside: int) -> None:
        c = self.fresh("c")
        self.line(depth, f"{c} = {self.r.choice(['s * 0', '0'])}")
        self.line(depth, f"while {c} < 3 and {self.condition(1)}:")
        self.line(depth + 1, f"{c} = {c} + 1")
        self.loops.append("while")
        self.block(depth + 1, inside + 1)
        self.loops.pop()

    def held(self, depth: int, inside: int) -> None:
        """A dict or a list that a loop or a branch changes."""
        d, v, out = self.fresh("d"), self.fresh("v"), self.fresh("s")
        if self.r.random() < 0.5:
            self.line(depth, f"{d} = {{'v': {self.pick('v')} * 1, 'n': 0, 's': [{self.pick('s')} * 1]}}")
            vector, number, scalar = f"{d}['v']", f"{d}['n']", f"{d}['s'][0]"
        else:
            self.line(depth, f"{d} = [{self.pick('v')} * 1, 0, ({self.pick('s')} * 1,)]")
            vector, number, scalar = f"{d}[0]", f"{d}[1]", f"{d}[2]"
        self.line(depth, self.r.choice([f"for {v} in m:", "for _ in range(2):", f"if {self.condition()}:"]))
        named = v if "for v" in self.lines[-1] else self.pick("v")
        self.line(depth + 1, f"{vector} = F.tanh({vector} + {named})")
        if self.r.random() < 0.6:
            self.line(depth + 1, f"if {self.condition()}:")
            value = f"{scalar} + {vector}.sum()" if scalar.startswith(f"{d}['") else f"({scalar}[0] + {vector}.sum(),)"
            self.line(depth + 2, f"{scalar} = {value}")
        self.line(depth + 1, f"{number} += {self.r.choice([1, 2, -1])}")
        scalar += "" if scalar.startswith(f"{d}['") else "[0]"
        self.line(depth, f"{out} = {scalar} + {vector}.sum() * {number} + m[0, 0] * 0")
        self.names["s"].append(out)

    def named(self, depth: int, inside: int) -> None:
        """A list or a dict of tensors that have other names too, a branch or a loop around what sets them or changes them in place."""
        r, d, e, out = self.r, self.fresh("d"), self.fresh("e"), self.fresh("v")
        x, y = self.fresh("v"), self.fresh("v")
        self.line(depth, f"{x}, {y} = {self.pick('v')} * 1, {self.pick('v')} + 1")
        first, second = ("['a']", "['b']") if r.random() < 0.5 else ("[0]", "[1]")
        self.line(depth, f"{d} = {{'a': {x}, 'b': {y}}}" if first == "['a']" else f"{d} = [{x}, {r.choice([x, y])}]")
        self.line(depth, f"{e} = {r.choice([d, f'[{d}{first}, {y}]', f'({x}, {d})', x, f'{y} * 2'])}")
        kept = self.fresh("list")
        self.line(depth, f"{kept} = []")
        c = self.fresh("c")
        self.line(depth, f"{c} = s * 0")
        head = r.choice(["if", "if", "for _ in m:", f"while {c} < 3 and"])
        self.line(depth, head if ":" in head else f"{head} {self.condition(1)}:")
        one, two = f"{d}{first}", f"{d}{second}"
        sets = [f"{one} = {one} * 0.5", f"{one} = {two}", f"{one} = {x}", f"{x} = {one}", f"{x} = {x} * 0.5 + 1", f"{two} = {y} + {one}",
                f"{d} = [{two}, {x}]" if first == "[0]" else f"{d} = {{'a': {two}, 'b': {x}}}"]  # fmt: skip
        writes = [f"{one} += 1", f"{x} += 1", f"{y} *= 0.5", f"{two}[0] = {self.pick('s')}", f"{e} = {x}"]
        body = [r.choice(sets) for _ in range(r.randint(1, 2))] + [r.choice(writes)] * (r.random() < 0.3)
        r.shuffle(body)
        if "for" in head and r.random() < 0.5:
            body.insert(r.randint(0, len(body)), f"{kept}.append({r.choice([x, one])})")
        if "while" in head:
            body.append(f"{c} = {c} + 1")
        for text in body:
            self.line(depth + 1, text)
        if r.random() < 0.3:
            self.line(depth, r.choice([*writes[:4], f"{one} = {one} + 1", f"for {out} in {kept}:\n{'    ' * (depth + 1)}{out} += 1"]))
        self.line(depth, f"{out} = {one} + {two} * 0.5 + {x} * {y} + total({kept}) + total({e})")
        self.names["v"].append(out)

    def match_(self, depth: int, inside: int) -> None:
        i, k = self.fresh("i"), self.fresh("i")
        some = self.r.choice([f"('a', {self.r.randint(0, 3)})", "('b', n)", "{'kind': n, 'v': v}", "[n, v]", "n"])
        self.line(depth, f"{i} = {k} = 1")
        self.line(depth, f"match {some}:")
        cases = ["case ('a', 1 | 2):", f"case (str(), {k}):", f"case {{'kind': {i}, **rest}}:", f"case [{i}, Tensor()] if {i} > 1:", "case 2:"]
        for case in [*self.r.sample(cases, 3), "case _:"]:
            self.line(depth + 1, case)
            self.block(depth + 2, inside + 1)
        self.names["i"] += [i, k]

    def else_(self, depth: int, inside: int) -> None:
        a, head = self.fresh("v"), self.r.choice(["range(3)", "m", "zip(m, m, strict=True)", "map(F.tanh, m)"])
        item = a if head[0] in "m" else self.fresh("i") if head[0] == "r" else f"{a}, {a}_"
        self.line(depth, f"for {item} in {head}:")
        self.line(depth + 1, f"if {self.condition()}:")
        self.line(depth + 2, "break")
        self.loops.append("else")
        self.block(depth + 1, inside + 1)
        self.loops.pop()
        self.line(depth, "else:")
        self.block(depth + 1, inside + 1)

    def assigned(self, depth: int, inside: int) -> None:
        a, c = self.fresh("s"), self.fresh("c")
        self.line(depth, f"{a}, {c} = s * 1, 0")
        value = f"({a} := {self.expression('s', 1)} + s * 0)"
        ifs = [f"if {value} > 1:", f"if {self.condition(1)} and {value} < 2:"]
        head = self.r.choice([*ifs, f"while {c} < 3 and {value} < 4:", f"while ({c} := {c} + 1) < 3:"])
        self.line(depth, head)
        if head[0] == "w":
            self.loops.append("while")
            self.line(depth + 1, f"{c} = {c} + 1")
        self.block(depth + 1, inside + 1)
        if head[0] == "w":
            self.loops.pop()
        self.names["s"].append(a)

    def grown(self, depth: int, inside: int) -> None:
        d, a, out = self.fresh("d"), self.fresh("v"), self.fresh("v")
        self.line(depth, f"{d} = {{'rows': [{self.pick('v')} * 1], 'sums': [[], []], 'gone': 1}}")
        self.line(depth, f"for {a} in {self.r.choice(['m', 'reversed(m)', 'map(F.tanh, m)'])}:")
        self.names["v"].append(a)
        if self.r.random() < 0.5:
            self.plain(depth + 1, inside + 1)
        self.line(depth + 1, f"{d}['rows'].append({self.expression('v', 1)})")
        self.line(depth + 1, f"{d}['sums'][1].append({self.expression('s', 1)} + s * 0)")
        self.names["v"].remove(a)
        self.line(depth, f"del {d}['gone'], {d}['sums'][0]")
        self.line(depth, f"{out} = F.stack({d}['rows']).sum(0) + F.stack({d}['sums'][0]).sum() * len({d})")
        self.names["v"].append(out)

    def mixed(self, depth: int, inside: int) -> None:
        """States of several dtypes, of one element and of none, and bools, which a loop over tensors carries."""
        r = self.r
        q, b, o, w, d, a, i, out = (self.fresh(k) for k in ("q", "b", "o", "w", "d", "v", "i", "v"))
        x, y = self.pick("v"), self.pick("s")
        first = {
            q: f"({x} * 2).astype('{r.choice(['int32', 'int64', 'uint8'])}')", b: r.choice([f"{y} > 0", f"{x} > 0"]),
            o: r.choice([f"{x}[:1] * 1", f"{x}[2:2] * 1", f"{x}.reshape(2, 1, 2) * 1", f"{y}.reshape(1) + 1"]),
            w: f"({x} * 40).astype('int8')", d: f"{x}.astype('float64')",
        }  # fmt: skip
        for name, value in first.items():
            self.line(depth, f"{name} = {value}")
        self.line(depth, f"for {i}, {a} in enumerate({r.choice(['m', 'm[::-1]', f'm * {x}'])}):")
        k = r.choice([f"{a}.sum()", y, f"{a}[{i}]"])
        flag = [f"{k} > 0", f"{b} or {k} > 1", f"{b} and {k} < 2", f"not {k} > 0"] if first[b][0] == "s" else [f"{b} & ({a} > 0)"]
        news = [
            f"{q} = {r.choice([f'{q} + ({a} > 0)', f'{q} * 3 - {i}', f'{q} // 2', f'F.where({a} > 0, {q}, {q} + 1)', f'{q} % 3'])}",
            f"{b} = {r.choice(flag)}", f"{o} = {r.choice([f'{o} * 0.5 + {k}', f'{o} - {i}', f'F.tanh({o}) + {o}'])}",
            f"{w} = {r.choice([f'{w} + {w}', f'{w} - {i}', f'{w} * 3', f'-{w}'])}",
            f"{d} = {r.choice([f'{d} + {a}', f'{d} * 0.1 + {i}', f'{d} + {q}'])}", f"{q}, {d} = {q} + {i}, {d} - {q}",
            f"{o}, {d} = {o} + {d}.sum().astype('float32'), {d} + {o}.sum()",
        ]  # fmt: skip
        for text in r.sample(news, r.randint(2, 5)):
            inner = depth + 1
            if r.random() < 0.3:
                self.line(inner, f"if {self.condition()}:")
                inner += 1
            self.line(inner, text)
        if r.random() < 0.4:
            self.loops.append("for")
            self.leave(depth + 1, inside + 1)
            self.loops.pop()
        self.line(depth, f"{out} = {q} * 1.0 + {o}.sum() + {w} * 0.25 + {d}.astype('float32') + F.where({b}, {x}, {y}) + {b}")
        self.names["v"].append(out)

    def tupled(self, depth: int, inside: int) -> None:
        """A tuple of tuples and dicts that a loop carries."""
        r, t, a, c, out = self.r, self.fresh("t"), self.fresh("v"), self.fresh("c"), self.fresh("v")
        self.line(depth, f"{t} = ({self.pick('v')} * 1, ({self.pick('s')} * 1, 1, 0.5), {{'k': v > 0}})")
        self.line(depth, f"{c} = s * 0")
        head = r.choice([f"for {a} in m:", "for _ in range(3):", f"while {c} < 3 and {self.condition(1)}:"])
        self.line(depth, head)
        row = a if "in m" in head else "m[1]"
        self.line(depth + 1, f"{c} = {c} + 1")
        x, y, n, z = f"{t}[0]", f"{t}[1][0]", f"{t}[1][1]", f"{t}[1][2]"
        first = r.choice([f"{x} + {row}", f"{x} * 0.5", f"{x} - {y}"])
        second = r.choice([f"{y} + {x}.sum()", f"{y} * 0.5", f"{row}.max() + {z}"])
        kept = r.choice([f"{row} > {y}", f"{t}[2]['k'] & ({row} > 0)"])
        new = f"{t} = ({first}, ({second}, {r.choice([f'{n} + 1', f'{n} * 2'])}, {z} * 0.5), {{'k': {kept}}})"
        under = r.random() < 0.5
        if under:
            self.line(depth + 1, f"if {self.condition()}:")
        self.line(depth + 1 + under, new)
        if r.random() < 0.3:
            self.line(depth + 1, f"if {self.condition()}:")
            self.line(depth + 2, "break")
        self.line(depth, f"{out} = {x} + {y} * {n} + {z} * {t}[2]['k']")
        self.names["v"].append(out)

    def sliced(self, depth: int, inside: int) -> None:
        """Slices that are set, at places that are known, or that a number or a tensor says."""
        r, u, i, k = self.r, self.fresh("v"), self.pick("i"), self.fresh("k")
        x, y = self.pick("v"), self.pick("s")
        self.line(depth, f"{u} = {self.pick('v')} * 1")
        self.line(depth, f"{k} = F.argmax({x})")
        texts = [
            f"{u}[1:3] = {x}[:2]", f"{u}[{i} % 4] = {y}", f"{u}[{k}] = {y}", f"{u}[::2] = {y}", f"{u}[-1:] = {x}[1:2] * 2", f"{u}[{k}] += 1",
            f"{u}[{i} % 4] -= {x}[{k}]", f"{u}[1:] = {u}[:3] + 1", f"{u}[{x} > 0] = {y}", f"{u}[...] = {u}[::-1] * 0.5",
            f"{u} = {u} + m[{k} % 3]", f"{u} = {u} + m[{i} % 3]",
        ]  # fmt: skip
        for text in r.sample(texts, r.randint(1, 3)):
            self.line(depth, text)
        self.names["v"].append(u)

    def with_(self, depth: int, inside: int) -> None:
        self.line(depth, "with no_grad():")
        self.block(depth + 1, inside + 1)

    def drawn(self, depth: int, inside: int) -> None:
        name = self.fresh("v")
        self.line(depth, f"{name}: object = random.uniform(-1, 1, (4,)){self.r.choice(['', ' + v', ' * s'])}")
        self.names["v"].append(name)

    def none(self, depth: int, inside: int) -> None:
        h, a = self.fresh("h"), self.fresh("v")
        self.line(depth, f"{h} = None")
        self.line(depth, f"for {a} in m:")
        self.line(depth + 1, f"if {h} is None:")
        self.line(depth + 2, f"{h} = {a} * 0.5")
        self.line(depth + 1, "else:")
        self.line(depth + 2, f"{h} = F.tanh({h} + {a})")
        out = self.fresh("v")
        self.line(depth, f"{out} = {h} + {self.pick('v')}")
        self.names["v"].append(out)


def total(x):
    """The sum of all numbers in lists, tuples and dicts."""
    if isinstance(x, Tensor):
        return x.sum()
    return sum(total(v) for v in (x.values() if isinstance(x, dict) else x))


def function(seed: int):
    """(the function, its source)."""
    text, name = Program(seed).text, f"<random script {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {"F": F, "Tensor": Tensor, "total": total, "random": tengen.random, "no_grad": no_grad, "__name__": __name__}
    exec(compile(text, name, "exec"), scope)
    return scope["f"], text


def arguments(seed: int, which: int) -> tuple:
    rng = np.random.default_rng((seed, which))
    half = lambda *shape: Tensor((rng.integers(-6, 7, shape) / 2).astype("float32"))
    return half(4), half(3, 4), half()


def outcome(f, args: tuple):
    """What a call gives, as bytes; an error by its class. `ScriptError` is raised."""
    tengen.random.seed(5)
    try:
        made = f(*args)
    except ScriptError:
        raise
    except (TengenError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as e:
        return type(e).__name__, str(e)
    return [x if isinstance(x, (int, float)) else (x.shape, x.dtype.name, x.numpy().tobytes(), x.item() if not x.ndim else None) for x in made]


def equal(wanted, got) -> bool:
    """Whether two outcomes are the same bits; a number of Python may be one in a tensor."""
    if type(wanted) is tuple or type(got) is tuple:
        return wanted == got
    return all(a == b or (not isinstance(a, tuple) and a == (b[3] if isinstance(b, tuple) else b)) for a, b in zip(wanted, got, strict=True))


def differs(seed: int, calls: int = 3) -> tuple[str, bool]:
    """(what differs between plain Python, a trace and a script, or "", whether the script was compiled)."""
    f, text = function(seed)
    wanted = [outcome(f, arguments(seed, k)) for k in range(calls)]
    traced = trace(f, max_programs=1000)
    for k in range(calls):
        got = outcome(traced, arguments(seed, k))
        if isinstance(got, tuple) and "help: " in got[1] and not isinstance(wanted[k], tuple):
            return f"refused: {got[1]}", False
        if not equal(wanted[k], got):
            return f"traced, call {k}: {got}\nnot {wanted[k]}\n{text}", True
    scripted = script(f)
    for k in range(calls):
        try:
            got = outcome(scripted, arguments(seed, k))
        except ScriptError as e:
            return f"refused: {e}", False
        if isinstance(got, tuple) and "help: " in got[1] and not isinstance(wanted[k], tuple):
            return f"refused: {got[1]}", False
        if not equal(wanted[k], got):
            return f"scripted, call {k}: {got}\nnot {wanted[k]}\n{text}", True
    return "", True


def further(seed: int, folder: str, calls: int = 3) -> str:
    """What differs between a script and its file, a trace around it, `vmap` of it, and plain Python's gradients, or "". Programs that are
    refused, raise errors or draw random numbers are left out."""
    f, text = function(seed)
    args = [arguments(seed, k) for k in range(calls)]
    if "random." in text or any(isinstance(outcome(f, a), tuple) for a in args):
        return ""
    scripted = script(f)
    try:
        wanted = [_bits(scripted(*a)) for a in args]
        file = os.path.join(folder, f"{seed}.tgn")
        scripted.dump(file, arg_names=["v", "m", "s"])
        examples = vmap(lambda *a: tuple(_tensors(scripted(*a))))(*(F.stack(list(x)) for x in zip(*args)))
        gradients = [grad(_loss(scripted), argnums=(0, 1, 2))(*a) for a in args]
    except TengenError as e:
        return "" if "help: " in str(e) else f"{e}\n{text}"
    loaded, traced = load_graph(file), trace(lambda *a: scripted(*a), symbolic=True)
    for k, a in enumerate(args):
        ways = {"loaded": loaded(v=a[0], m=a[1], s=a[2]), "traced": traced(*a), "vmap": [x[k] for x in examples]}
        for way, made in ways.items():
            if (got := _bits(made)) != wanted[k]:
                return f"{way}, call {k}: {got}\nnot {wanted[k]}\n{text}"
        for got, plain in zip(gradients[k], grad(_loss(f), argnums=(0, 1, 2))(*a)):
            # a loop adds its terms in another order: some hundred roundings of the largest element
            most = np.abs(np.nan_to_num(plain.numpy(), posinf=0, neginf=0)).max(initial=1)
            if not np.allclose(got.numpy(), plain.numpy(), 1e-4, 1e-5 * most, equal_nan=True):
                return f"gradient, call {k}: {got.tolist()}\nnot {plain.tolist()}\n{text}"
    return ""


def _tensors(made) -> list[Tensor]:
    return [x for x in made if isinstance(x, Tensor)] if isinstance(made, (list, tuple)) else [made]


def _bits(made) -> list:
    return [(x.shape, x.dtype.name, np.nan_to_num(x.numpy(), nan=7e30).tobytes()) for x in _tensors(made)]


def _loss(f):
    return lambda *a: sum((x.astype("float32") * (i + 1)).sum() for i, x in enumerate(_tensors(f(*a))) if x.dtype.is_float)


def main(seconds: float, first: int) -> None:
    folder = tempfile.mkdtemp()
    end, seed, refused, reasons = time.monotonic() + seconds, first, 0, {}
    while time.monotonic() < end:
        try:
            told, compiled = differs(seed)
            told = told or further(seed, folder)
        except Exception:
            told, compiled = f"{traceback.format_exc()}\n{function(seed)[1]}", True
        if told and compiled:
            print(f"==== seed {seed}\n{told}", flush=True)
        refused += not compiled
        if not compiled:
            reasons.setdefault(told.split(":", 3)[-1][:70], []).append(seed)
        seed += 1
    print(f"{seed - first} programs, {refused} of them refused")
    for why, seeds in sorted(reasons.items(), key=lambda x: -len(x[1])):
        print(len(seeds), seeds[:3], why)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
