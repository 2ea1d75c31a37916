"""Small programs for the tests of `script`: loops over tensors, conditions of loops, and ranges."""

import numpy as np
from scripted_programs import A, B, program

import tengen.functional as F

# ---- loops over tensors ----------------------------------------------------------------------------------------------


@program(A, A[:1])
def sum_of_rows(x):
    total = 0.0
    for row in x:
        total = total + row.sum()
    return total


@program(A)
def first_row_is_special(x):
    h, rows = None, []
    for row in x:
        h = row if h is None else h * 0.5 + row
        rows.append(h)
    return F.stack(rows), h


@program(A)
def flag_for_the_first(x):
    first = True
    for row in x:
        if first:
            h = row
            first = False
        h = F.tanh(h + row)
    return h


@program(A)
def list_with_elements_around(x):
    rows = [x[0]]
    for r in x:
        rows.append(r * 2)
    rows.append(x[1])
    return F.concat(rows), F.stack(rows, 1), rows[-1], len(rows), rows


@program(A)
def list_of_pairs(x):
    pairs = []
    for r in x:
        pairs.append((r, r.sum()))
    return pairs


@program(A)
def a_loop_over_a_list_that_a_loop_filled(x):
    rows, s = [], x[0] * 0
    for r in x:
        rows.append(r + 1)
    for r in rows:
        s = s * 0.5 + r
    return s


@program(A)
def enumerate_zip_reversed(x):
    s = x[0] * 0
    for i, (a, b) in enumerate(zip(x, x * 2), 1):
        s = s * 0.25 + a * b * i
    for r in reversed(x):
        s = s * 0.5 + r
    return s


@program(A)
def pieces(x):
    h = None
    for t in x.split(2):
        h = t.sum() if h is None else h + t.sum()
    for t in x.split(1, 1):
        h = h + t.sum()
    for t in F.split(x, 5):
        h = h * 0.5 + t.sum()
    return h


@program(A)
def skipped_rows(x):
    s = 0.0
    for i, row in enumerate(x):
        if i % 2 == 0:
            continue
        s += row.sum() * i
    return s


@program(A, A * 0)
def returns_from_a_loop(x):
    for row in x:
        if row.sum() > 0.5:
            return row
    return x[0] - 1


@program(A, A * 3)
def nested_loops(x):
    best = x[0, 0]
    for r in x:
        for v in r:
            if v > best:
                best = v
    return best


@program(A)
def list_as_state(x):
    hs = [x[0], x[1]]
    for r in x:
        hs[0] = hs[0] + r
        hs[1] = hs[1] * 0.5 + hs[0]
    return hs


@program(A)
def dict_as_state(x):
    d = {"a": x[0], "n": 0}
    for r in x:
        d["a"] = d["a"] + r
        d["n"] += 1
    return d


@program(A.astype("float16"))
def numbers_stay_weak(x):
    scale, n = 0.1, 0
    for row in x:
        n += 1
        scale = scale * 0.5
        last = row * scale + n
    return last, scale, n


# ---- conditions ------------------------------------------------------------------------------------------------------


@program(np.int64(27), np.int64(1))
def collatz(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@program(A, B)
def halves(x):
    n = 0
    while x.sum() > 1:
        x = x / 2
        n += 1
    return x, n


@program(A, B)
def while_true(x):
    n = 0
    while True:
        x = x * 0.5
        n += 1
        if x.sum() < 0.01 or n > 50:
            return x, n


@program(B)
def breaks_from_a_range(x):
    for i in range(10):
        x = x * 0.5 + i
        if x.sum() > 1:
            break
    return x, i


@program(B, A)
def returns_from_a_range(x):
    for i in range(100):
        if x.sum() < 0.5:
            return x, i
        x = x / 2
    return x, -1


@program(A, A * 3)
def breaks_of_nested_ranges(x):
    found = -1
    for i in range(5):
        for j in range(3):
            if x[i, j] > 1.0:
                found = i * 10 + j
                break
        if found >= 0:
            break
    return found


@program(np.int64(6), np.int64(1), np.int64(0))
def range_of_a_tensor(n):
    s = 0
    for i in range(2, n * 2, 3):
        s += i * i
    return s


@program(A)
def search_within_bounds(x):
    v, i = x[:, 0], 0
    while i < 5 and v[i] < 0.5:
        i += 1
    while True:
        i -= 1
        if i < 0:
            break
        if v[i] > 10:
            continue
    return i
