"""Functions of SciPy and scikit-learn that take array API inputs, called of Tensors and of NumPy's arrays: prints a JSON object, {function:
what is wrong, or null}. A process of its own, since SciPy reads its environment when it is imported."""

import json
import os
import sys
import traceback
import warnings

os.environ["SCIPY_ARRAY_API"] = "1"

import array_api_compat
import numpy as np
import sklearn
from scipy import integrate, signal, special, stats
from sklearn import decomposition, metrics, preprocessing

import tengen.array_api as xp
from tengen import Tensor

RNG = np.random.default_rng(0)
A = RNG.normal(size=(20, 3))
LABELS, OTHERS = RNG.integers(0, 2, 20), RNG.integers(0, 2, 20)
CALLS = {
    "scipy.special.logsumexp": lambda a: special.logsumexp(a(A), axis=0),
    "scipy.special.softmax": lambda a: special.softmax(a(A), axis=1),
    "scipy.stats.zscore": lambda a: stats.zscore(a(A), axis=0),
    "scipy.stats.skew": lambda a: stats.skew(a(A), axis=0),
    "scipy.stats.entropy": lambda a: stats.entropy(a(np.abs(A)), axis=0),
    "scipy.stats.pearsonr": lambda a: stats.pearsonr(a(A[:, 0]), a(A[:, 1])).statistic,
    "scipy.integrate.cumulative_trapezoid": lambda a: integrate.cumulative_trapezoid(a(A), axis=0),
    "scipy.signal.fftconvolve": lambda a: signal.fftconvolve(a(A), a(A)),
    "sklearn.metrics.r2_score": lambda a: metrics.r2_score(a(A[:, 0]), a(A[:, 0] + 0.1 * A[:, 1])),
    "sklearn.metrics.confusion_matrix": lambda a: metrics.confusion_matrix(a(LABELS), a(OTHERS)),
    "sklearn.metrics.pairwise.euclidean_distances": lambda a: metrics.pairwise.euclidean_distances(a(A)),
    "sklearn.decomposition.PCA": lambda a: decomposition.PCA(2, svd_solver="full").fit_transform(a(A)),
    "sklearn.preprocessing.StandardScaler": lambda a: preprocessing.StandardScaler().fit_transform(a(A)),
}
NUMBERS = {"sklearn.metrics.r2_score"}  # what gives Python's numbers


def wrong(name: str) -> str | None:
    """What is wrong with a function's result, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = CALLS[name](np.asarray)
        try:
            got = CALLS[name](xp.asarray)
        except Exception:
            return traceback.format_exc()
    if not isinstance(got, float if name in NUMBERS else Tensor):
        return f"it gives a {type(got).__name__}"
    if np.shape(got) != np.shape(want) or not np.allclose(np.asarray(got), np.asarray(want), rtol=1e-10, atol=1e-12):
        return f"{got}, not {want}"
    return None


if __name__ == "__main__":
    if array_api_compat.array_namespace(Tensor([1.0])) is not xp:
        sys.exit("array_api_compat finds another namespace")
    with sklearn.config_context(array_api_dispatch=True):
        print(json.dumps({name: wrong(name) for name in CALLS}))
