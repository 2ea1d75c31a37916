"""Calls as PyTorch's users write them, one text for both libraries: the same numbers, dtypes and shapes, and gradients of most."""

import re
import types
import warnings

import numpy as np
import pytest

import tengen.functional as F
from tengen import Parameter, Tensor, autodiff, linalg, trace
from tengen import module as M
from tengen.base.errors import ArgumentError, AxisError, DTypeError, ShapeError
from tengen.tensor.pytorch_names import METHODS

R = np.random.default_rng(3)
SPD = R.normal(size=(3, 3))
VALUES = {
    "x": R.normal(size=(2, 3)), "y": R.normal(size=(2, 3)), "z": np.array([[0.0, 1.0, -2.0], [0.5, -0.5, 3.0]]), "v": R.normal(size=4),
    "w": R.normal(size=4), "p": R.uniform(0.1, 0.9, (2, 3)), "b": R.normal(size=(2, 3, 4)), "c": R.normal(size=(2, 4, 2)),
    "q": SPD @ SPD.T + np.eye(3), "n": np.array([1.0, np.nan, np.inf, -np.inf]), "image": R.normal(size=(2, 4, 4, 6)),
    "i": np.array([2, 0, 2]), "j": np.array([[0, 2, 1], [1, 1, 0]]), "m": np.array([[True, False, True], [False, True, False]]),
    "l": np.array([2, 0]), "k": np.array([3, -5, 7, 12]), "s": np.array([1.0, -1.0]), "bits": np.array([5, 6, 3, 12]),
    "e": np.array([0.0, 1.0, 0.5, -0.5, 2.0]), "f": np.array([3.0, 0.0, 0.0, np.inf, 1.0]),
    "t": np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]), "table": R.normal(size=(5, 3)), "o": np.array([0, 1]),
}  # fmt: skip
# of functions (F is `torch` and `torch.nn.functional` together) and of methods
SMOOTH = """
F.hstack([x, y]) F.vstack([v, w]) F.dstack([x, y]) F.column_stack([v, w]) F.atleast_2d(v) F.atleast_3d(x)
F.block_diag(x, q, v) F.chunk(x, 2, dim=1)[1] F.tensor_split(b, 3, dim=2)[1] F.unbind(x, 1)[2]
F.broadcast_tensors(x, y[:1])[1] F.cartesian_prod(v, w) F.combinations(v) F.combinations(v, 2, True) F.movedim(b, 0, 2)
F.fliplr(x) F.flipud(x) F.rot90(b) F.rot90(b, 2) F.rot90(b, -1, (1, 2)) F.diag_embed(x) F.diag_embed(x, 1) F.diag_embed(x, -2)
F.diagflat(x) F.index_add(x, 1, i, y) F.index_add(x, 1, i, y, alpha=0.5) F.index_copy(x, 1, i[:2], y[:, :2])
F.index_fill(x, 1, i, 5.0) F.masked_scatter(x, m, v) F.fmod(x, 0.3) F.fmod(x, y) F.frac(x) F.heaviside(z, x) F.logit(p)
F.logit(p, 0.2) F.xlogy(p, p) F.sinc(z) F.deg2rad(x) F.rad2deg(x) F.logaddexp2(x, y) F.fmax(x, y) F.fmin(x, y)
F.addcmul(x, y, z, value=0.5) F.addcdiv(x, z, p, value=2.0) F.amax(b, dim=(0, 2)) F.amin(b, dim=1, keepdim=True)
F.aminmax(x)[0] F.var_mean(b, dim=1)[0] F.var_mean(b, dim=(0, 2), correction=0)[1] F.std_mean(x)[0] F.kthvalue(x, 2)[0]
F.msort(b) F.trapezoid(b, dim=1) F.trapezoid(b, v, dim=2) F.trapezoid(b, dx=0.5) F.cov(x) F.cov(v) F.corrcoef(x)
F.addmm(q, q, q, beta=0.5, alpha=2) F.baddbmm(c[:, :2], c[:, :2], c[:, 2:]) F.inner(b, c[0].T) F.tensordot(b, v, 1)
F.tensordot(x, b, ([0, 1], [0, 1])) F.kron(x, q) F.kron(v, x) F.vander(v) F.vander(v, 3, increasing=True)
F.pairwise_distance(x, y) F.pairwise_distance(x, y, p=1.0, keepdim=True) F.cdist(x, q) F.cdist(b, b[:, :2], p=3.0)
F.cdist(x, x, p=1.0) F.hardtanh(x, -0.5, 0.2) F.hardshrink(x) F.softshrink(x, 0.2) F.tanhshrink(x) F.softsign(x)
F.softmin(x, dim=1) F.celu(x, 0.7) F.threshold(x, 0.1, 3.0) F.pixel_unshuffle(image, 2) F.channel_shuffle(image, 2)
F.bilinear(x, y, R[:, :3, :3], v[:2]) F.unfold(image, (2, 3))
F.fold(F.unfold(image, (2, 3), 1, 1, 2), (4, 6), (2, 3), 1, 1, 2) F.embedding_bag(j, table)
F.embedding_bag(j, table, mode="max") F.embedding_bag(i, table, o, mode="sum") F.embedding_bag(i, table, o)
F.embedding(j, table, padding_idx=1) F.relu(x, inplace=True) F.elu(x, inplace=True) F.normalize(x, p=1, dim=0)
F.flip(b, dims=(0, 2)) F.tril(q, diagonal=-1) F.clip(x, min=-0.5, max=0.5) F.topk(b, k=2, dim=1, largest=True)[0]
F.roll(b, shifts=1, dims=2) F.cross_entropy(x, l) F.cross_entropy(x, l, label_smoothing=0.1)
F.cross_entropy(x, l, weight=v[:3].exp()) F.cross_entropy(x, l, weight=v[:3].exp(), label_smoothing=0.2)
F.cross_entropy(x, l, ignore_index=0) F.cross_entropy(x, t)
F.cross_entropy(x, t, weight=v[:3].exp(), label_smoothing=0.1, reduction="sum")
F.cross_entropy(b, j[:, [0, 1, 2, 0]], ignore_index=2)
F.cross_entropy(x, l, weight=v[:3].exp(), ignore_index=2, reduction="none") F.nll_loss(x, l, weight=v[:3].exp())
F.nll_loss(x, l, ignore_index=2) F.binary_cross_entropy_with_logits(x, t, pos_weight=v[:3].exp())
F.binary_cross_entropy_with_logits(x, t, weight=p) F.hinge_embedding_loss(v[:2], s) F.soft_margin_loss(v[:2], s)
F.multi_margin_loss(x, l) F.multi_margin_loss(x, l, p=2, margin=0.5) F.multilabel_soft_margin_loss(x, t)
F.poisson_nll_loss(x, p) F.poisson_nll_loss(p, 3 * p, log_input=False, full=True) F.gaussian_nll_loss(x, y, p)
F.gaussian_nll_loss(x, y, p, full=True) F.mse_loss(input=x, target=y) F.kl_div(x, p, reduction="batchmean") F.linalg.norm(x)
F.linalg.norm(x, 1, 1) F.linalg.norm(b, 'nuc', (0, 2), True)
F.linalg.norm(b, 1, (2, 0)) F.linalg.norm(b, float('-inf'), (-1, 0), True) F.hardshrink(n) F.softshrink(n) F.threshold(n, 0.5, 9.0)
F.xlogy(e, f) x.addcmul(y, z) x.addcdiv(y, p, value=2) q.addmm(q, q) x.amax(1)
x.amin(dim=0) x.aminmax(dim=1)[1] c.baddbmm(c, c[:, :2]) x.corrcoef() x.cov() b[..., :3].cross(b[..., 1:], dim=2) x.deg2rad()
x.diag_embed() v.diagflat() v.dot(w) x.fliplr() x.flipud() x.fmax(y) x.fmin(y) x.fmod(0.3) x.frac() x.hardshrink()
z.heaviside(x) x.index_add(1, i, y) x.index_copy(1, i[:2], y[:, :2]) x.index_fill(1, i, 2.0) x.inner(y) v.kron(w)
x.kthvalue(1)[0] x.logaddexp2(y) p.logit() x.masked_scatter(m, v) x.msort() x.norm() x.norm(2, dim=1) x.norm(p=1) v.outer(w)
x.rad2deg() x.rot90() z.sinc() x.tensor_split(3, 1)[0] p.xlogy(p) q.cholesky() q.det() q.matrix_exp() q.matrix_power(3)
q.pinverse() q.inverse() q.slogdet()[1] q.trace() x.dist(y) x.ravel() x.reshape_as(y[:, :, None]) x.take_along_dim(j, 1)
x.clamp_min(0.1) x.clamp_max(0.1) x.absolute() p.arccos() p.acos() (p + 1).acosh() (p + 1).arccosh() p.asin() p.arcsin()
x.asinh() x.arcsinh() x.atan() x.arctan() x.atan2(y) x.arctan2(y) p.atanh() p.arctanh() x.multiply(y) x.subtract(y)
x.divide(p) x.true_divide(p) x.negative() x.sgn() x.fix() x.trunc() x.cosh() x.sinh() x.tan() x.erf() x.erfc() x.exp2()
x.expm1() x.hypot(y) (p + 1).lgamma() (p + 1).digamma() p.log10() p.log2() x.logaddexp(y) x.diff() x.prelu(v[:1])
x.moveaxis(0, 1) x.nan_to_num() x.copysign(y) x.quantile(0.25, dim=1) x.scatter(1, j, y) x.scatter_add(1, j, y)
F.cummax(x, 1)[0] F.cummin(b, dim=0)[0] F.logcumsumexp(b, 2) F.logcumsumexp(400 * x, dim=1) F.mode(x, 1)[0] F.cumulative_trapezoid(b)
F.cumulative_trapezoid(b, dx=0.5, dim=1) F.cumulative_trapezoid(b, v, dim=2) F.pdist(table) F.pdist(b[0], p=1.0)
F.scatter_reduce(x, 1, j, y, "mean") F.scatter_reduce(x, 1, j, y, "amax") F.scatter_reduce(x, 1, j, y, "prod", include_self=False)
F.scatter_reduce(x, 1, j, y, "amin", include_self=False) F.scatter_reduce(x, 1, j, y, reduce="mean", include_self=False)
F.scatter_reduce(x, 0, j[:1, :2].abs() * 0, y, reduce="sum") F.index_reduce(x, 1, i, y, "mean")
F.index_reduce(x, 1, i, y, "amax", include_self=False)
x.cummax(dim=1)[0] x.cummin(1)[0] x.logcumsumexp(1) x.mode(1)[0] x.scatter_reduce(1, j, y, reduce="sum") x.index_reduce(1, i, y, "prod")
x.std(dim=1, correction=1) x.var(0, unbiased=False) F.std(b, dim=(0, 2), correction=1, keepdim=True) F.var(x, unbiased=True)
F.max_pool2d(image, 3, 2, ceil_mode=True) F.max_pool2d(image, 2, 2, 1, 2, True) F.max_pool2d(image[0], (2, 3), stride=1, padding=(1, 0))
F.max_pool1d(b, 3, 2, ceil_mode=True) F.max_pool3d(image[:, None], 2, 3, 1, ceil_mode=True) F.max_pool2d(image, 3, 2, 1, return_indices=True)[0]
F.avg_pool2d(image, 3, 2, ceil_mode=True, count_include_pad=False) F.avg_pool2d(image, 3, 2, 1, ceil_mode=True, count_include_pad=True)
F.avg_pool2d(image[0], 2, divisor_override=3) F.avg_pool1d(b, 3, 2, 1, count_include_pad=False) F.avg_pool1d(b, 3, 2, ceil_mode=True)
F.lp_pool2d(image, 3, 2) F.lp_pool1d(b, 2, 2, 1) F.lp_pool2d(image.abs(), 1.5, (3, 2), ceil_mode=True)
F.adaptive_avg_pool2d(image[0], output_size=3)
F.adaptive_max_pool2d(image, 3, return_indices=True)[0] F.max_unpool2d(image, *[image.flatten(-2).argsort(dim=-1).view(image.shape) * 3], 3, 4)
F.max_unpool1d(b, b.argsort(dim=-1) * 2, 2)
F.max_unpool2d(*F.max_pool2d(image, 2, return_indices=True), 2, output_size=(4, 7))
F.max_unpool3d(*F.max_pool3d(image[:, None], 2, return_indices=True), 2)
F.margin_ranking_loss(input1=v, input2=w, target=v.sign()) F.sort(x, dim=0, stable=True)[0] x.topk(2, dim=1, largest=False, sorted=True)[0]
F.dropout(x, training=False) F.triplet_margin_loss(x, y, z) F.huber_loss(x, y, delta=0.5)
x.repeat_interleave(2, dim=1) x.split_with_sizes([1, 2], 1)[1]
"""
OTHERS = """
F.linalg.multi_dot([x, b[0], c[0]]) F.linalg.multi_dot([v, c[0], c[1].T, c[1]]) F.linalg.cond(q) F.linalg.cond(q, -2) F.linalg.cond(q, 'fro')
F.linalg.cond(q, 1)
F.tril_indices(3, 4) F.tril_indices(3, 4, 1) F.triu_indices(4, 3, -1) F.isin(j, i) F.isin(j, i, invert=True)
F.unravel_index(k.abs(), (3, 5))[1] F.fmod(k, 4) F.fmod(k, -4) F.isposinf(n) F.isneginf(n)
F.logspace(0, 1, 4, dtype=F.float64) F.linspace(0, 1, steps=4, dtype=F.float64) F.nansum(n[:2]) F.nanmean(n[:2])
F.kthvalue(x, 2)[1] F.histc(x, 4, -1, 1) F.bucketize(x, v.sort()[0]) F.bucketize(x, v.sort()[0], right=True) F.heaviside(k, k)
F.fmax(n, v) F.fmin(v, n) F.binary_cross_entropy(t, t) F.tensordot(j, j, 2) F.kron(k, k) F.xlogy(t, t) F.block_diag(k, k)
F.softmin(x, 0).argmax(1) n.isneginf() n.isposinf() x.histc(4, -1, 1) n[:2].nansum() n[:2].nanmean() x.allclose(x) x.equal(x)
x.equal(y) x.greater(y) x.greater_equal(y) x.less(y) x.less_equal(y) x.not_equal(y) k.floor_divide(4) k.remainder(4)
t.argwhere() k.bitwise_and(bits) k.bitwise_or(bits) k.bitwise_xor(bits) k.bitwise_not() k.bitwise_left_shift(2)
k.bitwise_right_shift(1) j[0].bincount() x.isclose(y) m.count_nonzero() m.logical_and(t > 0) m.logical_or(t > 0)
m.logical_xor(t > 0) m.logical_not() x.signbit() x.nextafter(y) x.ndimension() x.new_empty(3).shape v[:3].median()
x.isclose(x)
F.max_pool2d(image, 3, 2, 1, return_indices=True)[1] F.max_pool2d(image, 2, ceil_mode=True, dilation=2, return_indices=True)[1]
F.max_pool1d(b, 2, return_indices=True)[1] F.max_pool3d(image[:, None], 2, return_indices=True)[1]
F.max_pool2d(image[0], 2, return_indices=True)[1]
F.adaptive_max_pool2d(image, (3, 2), return_indices=True)[1] F.adaptive_max_pool1d(b[0], 3, return_indices=True)[1]
F.std((x + y * 1j), dim=1, correction=1) F.cummax(n, 0)[0] F.cummin(n, 0)[0] F.cummax(j, 1)[1] F.cummin(j, 1)[0]
F.cummax(bits, 0)[1] F.cummax(k.sum(), 0)[1]
F.mode(j)[0] F.mode(j, 0, True)[1] F.mode(i, -1)[1] F.nanquantile(n[:2], 0.3) F.nanquantile(z, 0.3, dim=1, keepdim=True) n[:2].nanmedian()
n.nanquantile(0.0) x.argsort(dim=1, stable=True) x.size(1) b.size() b.size(dim=-1) F.nanmedian(n[1:2] * 1)
F.unique_consecutive(j, return_inverse=True)[1] F.unique_consecutive(t, return_counts=True)[1]
F.unique_consecutive(t, dim=0) t.unique_consecutive(dim=1) F.unique_consecutive(v[:0])
F.scatter_reduce(k, 0, i, bits[:3], "mean") F.scatter_reduce(k, 0, i, bits[:3], "amax", include_self=False)
"""
IN_PLACE = """
add_(y) add_(y,alpha=0.5) sub_(y,alpha=2) mul_(y) div_(p) pow_(2) neg_() abs_() exp_() sigmoid_() tanh_() relu_()
clamp_(min=-0.1,max=0.2) clip_(-0.1,0.2) zero_() fill_(3) copy_(y) copy_(v[0]) copy_(j) masked_fill_(m,9.0) scatter_(1,j,y)
scatter_(1,j,2.0) scatter_add_(1,j,y) index_add_(1,i,y) index_fill_(1,i,4.0) index_copy_(1,i[:2],y[:,:2]) lerp_(y,0.25)
addcmul_(y,z,value=0.5) addcdiv_(y,p,value=0.5) masked_scatter_(m,v) sin_() cos_() round_() floor_() ceil_() trunc_()
square_() tril_() triu_() remainder_(0.7) multiply_(y) divide_(p) negative_() acos_() asin_() atan_() cosh_() erf_() expm1_()
scatter_reduce_(1,j,y,reduce="amax") index_reduce_(1,i,y,"mean") reciprocal_() sign_() sinh_() tan_() nan_to_num_()
mul_(y).add_(p).sqrt_().nan_to_num_() index_put_((l[1:],j[0,:1]),v[:1]) index_put_((j[:,2],i[:2]),v[0],accumulate=True)
"""

FUNCTIONS = {name: getattr(F, name) for name in F.__all__}


def texts(block: str) -> list[str]:
    """The calls of a block: parts between blanks outside of brackets."""
    found, depth, part = [], 0, ""
    for ch in " ".join(block.split()) + " ":
        depth += (ch in "([") - (ch in ")]")
        if ch == " " and not depth:
            found += [part] if part else []
            part = ""
        else:
            part += ch
    return found


def both(text: str, torch) -> tuple:
    """(ours, theirs) of a call."""
    theirs = types.SimpleNamespace(**{**vars(torch), **{n: getattr(torch.nn.functional, n) for n in dir(torch.nn.functional)}})
    ours = types.SimpleNamespace(**{**vars(F.loss), **FUNCTIONS, "linalg": linalg, "float64": "float64", "cross_entropy": F.loss.cross_entropy})
    ours.binary_cross_entropy = lambda p, t: F.loss.binary_cross_entropy(p, t, with_logits=False)
    made = {}
    for F_, wrap in ((ours, Tensor), (theirs, torch.tensor)):
        names = {n: wrap(a.copy()) for n, a in VALUES.items()}
        made[wrap] = eval(text, {"F": F_, "R": wrap(np.cos(np.arange(32.0)).reshape(2, 4, 4)), **names})
    return made[Tensor], made[torch.tensor]


def same(got, want, text):
    if not hasattr(want, "numpy"):
        return got == want, text
    got, want = got.numpy(), want.numpy()
    assert got.shape == tuple(want.shape), (text, got.shape, want.shape)
    if text.startswith(("F.linspace", "F.logspace", "F.tril_i", "F.triu_i")) or want.dtype.kind in "fb":
        assert got.dtype == want.dtype, (text, got.dtype, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=text)


@pytest.mark.parametrize("block", ["SMOOTH", "OTHERS"])
def test_calls_beside_pytorch(block):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    every = texts(globals()[block])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in every:
            same(*both(text, torch), text)
    assert len(every) > (200 if block == "SMOOTH" else 60)


@pytest.mark.filterwarnings("ignore:index_reduce")  # PyTorch tells that it is in beta
def test_in_place_beside_pytorch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for text in texts(IN_PLACE):
        for wrap in (Tensor, torch.tensor):
            names = {n: wrap(a.copy()) for n, a in VALUES.items()}
            x = wrap(VALUES["p"].copy() if text.startswith(("acos", "asin")) else VALUES["x"].copy())
            out = eval(f"x.{text}", {**names, "x": x})
            assert out is x
            if wrap is Tensor:
                got = x
        np.testing.assert_allclose(got.numpy(), x.numpy(), rtol=1e-9, atol=1e-12, err_msg=text)
    tried = {name for text in texts(IN_PLACE) for name in re.findall(r"(\w+_)\(", text)}
    written = {n for n in METHODS if n.endswith("_") and n != "detach_"}
    assert written - tried == {
        "addmm_", "maximum_", "minimum_", "log_", "log10_", "log1p_", "log2_", "rsqrt_", "logical_and_", "logical_or_", "logical_not_",
        "normal_", "uniform_", "bernoulli_", "exponential_", "random_", "requires_grad_",
    }  # fmt: skip
    p = Tensor([1.0, 2.0])
    assert p.log_().exp_().log2_().tolist() == pytest.approx([0.0, 1.0]) and Tensor([True]).logical_not_().tolist() == [False]
    assert Tensor([4.0]).rsqrt_().log10_().item() == pytest.approx(np.log10(0.5)) and Tensor([1.0]).log1p_().item() == pytest.approx(np.log(2))
    assert Tensor([1.0, 3.0]).maximum_(Tensor(2.0)).minimum_(Tensor(2.5)).tolist() == [2.0, 2.5]
    drawn = F.zeros(4000).normal_(1.0, 2.0)
    assert abs(drawn.mean().item() - 1) < 0.15 and abs(drawn.std().item() - 2) < 0.1 and 3 <= F.zeros(9).uniform_(3, 4).min().item() < 4
    chosen = F.zeros(4000).bernoulli_(0.25)
    assert abs(chosen.mean().item() - 0.25) < 0.04 and set(chosen.tolist()) == {0.0, 1.0}
    assert abs(F.zeros(4000).exponential_(4.0).mean().item() - 0.25) < 0.02 and set(F.zeros(99).random_(3).tolist()) == {0.0, 1.0, 2.0}
    assert Tensor([1.0]).requires_grad_().requires_grad and not Tensor([1.0]).requires_grad_(False).requires_grad


def test_programs_of_these_calls_have_the_same_bits():
    """Traced as one program, the functions without another meaning by value give what they give one by one."""
    some = [t for t in texts(SMOOTH) if t.startswith("F.") and not re.search(r"slogdet|linalg|combinations|embedding|R\[|corr|exp\(\)", t)][::4]
    names = {n: a.astype("f4") if a.dtype.kind == "f" else a for n, a in VALUES.items()}
    code = [compile(t, t, "eval") for t in some]
    scope = types.SimpleNamespace(**{**vars(F.loss), **FUNCTIONS})

    def run(**tensors):
        return [eval(c, {"F": scope, **tensors}) for c in code]

    tensors = {n: Tensor(a) for n, a in names.items()}
    for text, one, all_ in zip(some, run(**tensors), trace(run)(**tensors)):
        assert one.numpy().tobytes() == all_.numpy().tobytes(), text


def test_gradients_beside_pytorch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for text in (
        "F.cdist(x, y)", "F.cdist(x, x)", "F.pairwise_distance(x, y)", "F.sinc(z)", "F.xlogy(p, p)", "F.index_add(x, 1, i, y)", "F.cov(x)",
        "F.masked_scatter(x, m, v)", "F.cross_entropy(x, l, weight=w[:3].exp(), ignore_index=2)", "F.embedding(j, table, padding_idx=1)",
        "F.binary_cross_entropy_with_logits(x, t, pos_weight=w[:3].exp())", "F.gaussian_nll_loss(x, y, p)", "F.std_mean(b, dim=1)[0]",
        "F.bilinear(x, y, R[:, :3, :3])", "F.fold(F.unfold(image, 2), (4, 6), 2)", "F.celu(x)", "F.tensordot(b, v, 1)", "F.logit(p)",
        "F.xlogy(e, e + 1)", "F.celu(e, 2.0) + e", "F.softshrink(e) + e", "F.hardshrink(e) + e",
        "F.cdist(y, y, p=3.0)", "F.cummax(b, 1)[0]", "F.logcumsumexp(b, 1)", "F.scatter_reduce(x, 1, j, y, 'mean')",
        "F.std(b, 1, correction=1)",
        "F.scatter_reduce(x, 1, j, y, 'amax', include_self=False)",
        "F.nanquantile(b, 0.3, dim=1)", "F.max_pool2d(image, 3, 2, 1, 1, True, return_indices=True)[0]", "F.lp_pool2d(image, 2, 2)",
        "F.avg_pool2d(image, 3, 2, 1, ceil_mode=True, count_include_pad=True)", "F.max_pool2d(image, 2, ceil_mode=True, dilation=2)",
        "F.max_unpool2d(*F.max_pool2d(image, 2, return_indices=True), 2)", "F.poisson_nll_loss(x, p)", "F.embedding_bag(i, table, o)",
        "F.multi_margin_loss(x, l, p=2)",
    ):  # fmt: skip
        of = [n for n in ("x", "y", "z", "p", "v", "b", "e", "table", "image") if re.search(rf"\b{n}\b(?!=)", text)]
        theirs = types.SimpleNamespace(**{**vars(torch), **{n: getattr(torch.nn.functional, n) for n in dir(torch.nn.functional)}})
        ours = types.SimpleNamespace(**{**vars(F.loss), **FUNCTIONS, "cross_entropy": F.loss.cross_entropy})
        R_ = np.cos(np.arange(32.0)).reshape(2, 4, 4)
        fixed = {n: Tensor(a) for n, a in VALUES.items()}

        scope = {"F": ours, "R": Tensor(R_), **fixed}
        f = lambda *some, text=text, of=of, scope=scope: (eval(text, {**scope, **dict(zip(of, some))}) ** 2).sum()
        got = autodiff.grad(f, tuple(range(len(of))))(*(fixed[n] for n in of))
        known = {n: torch.tensor(a, requires_grad=n in of) for n, a in VALUES.items()}
        (eval(text, {"F": theirs, "R": torch.tensor(R_), **known}) ** 2).sum().backward()
        for n, g in zip(of, got):
            np.testing.assert_allclose(g.numpy(), known[n].grad.numpy(), rtol=1e-8, atol=1e-10, err_msg=f"{text} by {n}")


def test_probabilities_of_0_and_1_have_gradients():
    """-t log(p) - (1 - t) log(1 - p): PyTorch divides by p (1 - p) and gives 0 where p and t are 0 or 1 both; the derivatives are 1 and -1."""
    p, t = Tensor([0.0, 1.0, 0.0, 1.0]), Tensor([0.0, 1.0, 1.0, 0.0])
    g = autodiff.grad(lambda p: F.loss.binary_cross_entropy(p, t, with_logits=False, reduction="sum"))(p)
    assert g.tolist() == [1.0, -1.0, 0.0, 0.0]


def test_what_is_written_is_not_lost():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(ArgumentError, match=r"zero_\(\) of f32\[2\], which is a view.*x\[index\] = value.*clone"):
        x.view(4)[2:].zero_()
    for write in (lambda: x.add_(F.ones((3, 2, 2))), lambda: Tensor([1]).add_(0.5), lambda: Tensor([True]).mul_(2)):
        with pytest.raises((ShapeError, DTypeError), match="help:"):
            write()
    assert Tensor([1, 2], "int8").add_(Tensor([1, 1], "int64")).dtype == "int8"
    p = Parameter([1.0, 2.0])
    p.data.copy_(Tensor([3.0, 4.0])).mul_(2.0)
    p.data[0] = 1.0
    p.data -= 0.5
    assert p.tolist() == [0.5, 7.5] and type(p.data * 1) is Tensor
    p.data = np.array([1.0, 1.0, 1.0], "f4")
    assert p.shape == (3,) and type(p) is Parameter
    gm = autodiff.GradManager().attach(p)
    with gm:
        p.data.mul_(3.0)  # not recorded, and p stays attached
        gm.backward((p * p).sum())
    assert p.grad.tolist() == [6.0, 6.0, 6.0]
    p.grad.zero_()
    assert p.grad.tolist() == [0.0, 0.0, 0.0]
    copied = p.data.clone().add_(1.0)
    assert copied.tolist() == [4.0] * 3 and p.tolist() == [3.0] * 3
    average = Parameter([0.0, 0.0, 0.0])

    def moved(p):
        average.mul_(0.5).add_(p, alpha=0.5)
        average.data.add_(1.0)
        return average * 1

    one, step = moved(p).tolist(), trace(moved)
    average.zero_()
    assert step(p).tolist() == one and step(p).tolist() == [3.75] * 3 == average.tolist()


def test_results_on_the_tape_may_be_written():
    """The tape keeps what gradients need; a result that nothing else holds is no view for that."""
    x = Tensor([[1.0, 2.0]])
    gm = autodiff.GradManager().attach(x)
    with gm:
        y = F.sigmoid(x).mul_(2.0)
        z = (x * x).add_(y).exp_()
        with pytest.raises(ArgumentError, match="view"):
            z.view(2).mul_(2.0)
        gm.backward(z.sum())
    s = 1 / (1 + np.exp(-np.array([[1.0, 2.0]])))
    want = np.exp(np.array([[1.0, 4.0]]) + 2 * s) * (np.array([[2.0, 4.0]]) + 2 * s * (1 - s))
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-5)


def test_to_a_dtype():
    x = F.ones((2, 3))
    assert x.to("cpu") is x and x.to("cpu0", non_blocking=True) is x and x.to(dtype="float32") is x and x.to(x) is x
    like = Tensor(np.zeros(1))
    for made in (x.to("float64"), x.to("cpu", "float64"), x.to(dtype=np.float64), x.to(like), x.to(device="cpu", dtype="float64")):
        assert made.dtype == "float64"
    assert x.to("cpu", copy=True) is not x
    for bad in (lambda: x.to("float64", "int8"), lambda: x.to("cpu", "cpu0")):
        with pytest.raises(TypeError, match="two"):
            bad()


@pytest.mark.parametrize("call, error, words", [
    (lambda x: F.zeros(2, 3), TypeError, r"zeros\(\(2, 3\)\)"), (lambda x: F.chunk(x, 0), ShapeError, "at least 1"),
    (lambda x: F.tensor_split(x, 0), ShapeError, "at least 1"), (lambda x: F.rot90(x, 1, (0, 0)), AxisError, "differ"),
    (lambda x: F.cartesian_prod(x), ShapeError, "one axis"), (lambda x: F.index_add(x, 0, Tensor([0]), x), ShapeError, r"\(1, 3\) is expected"),
    (lambda x: F.masked_scatter(x, x, x), DTypeError, "bool"), (lambda x: F.kthvalue(x, 4), ArgumentError, r"1 \.\. 3"),
    (lambda x: F.addmm(x, x[0], x), ShapeError, "matrices"), (lambda x: F.cdist(x, x[:, :2]), ShapeError, "one extent"),
    (lambda x: F.gumbel_softmax(x, 0.0), ArgumentError, "tau"), (lambda x: F.pixel_unshuffle(x, 2), ShapeError, "multiples"),
    (lambda x: F.embedding_bag(Tensor([0]), x), ShapeError, "offsets"), (lambda x: F.fold(x, 3, 2), ShapeError, "is expected"),
    (lambda x: F.loss.cross_entropy(x, x, ignore_index=1), ArgumentError, "classes"),
    (lambda x: F.loss.cross_entropy(x, Tensor([0, 1]), weight=F.ones(2)), ShapeError, r"\(3,\)"),
    (lambda x: F.loss.binary_cross_entropy(x, x, False, pos_weight=x), ArgumentError, "logits"),
    (lambda x: M.CrossEntropyLoss(F.ones(3)), ArgumentError, "weight="), (lambda x: F.vander(x), ShapeError, "one axis"),
    (lambda x: F.max_pool2d(x, 2), ShapeError, "4 axes"), (lambda x: F.avg_pool2d(x[None], 2, 1, 0, True), ArgumentError, "ceil_mode="),
    (lambda x: F.max_unpool1d(x, x[0], 2), ShapeError, "indices"), (lambda x: F.max_unpool1d(x, x, 2, output_size=(9,)), ShapeError, "stride"),
    (lambda x: F.max_pool1d(x, (2, 2), dilation=2), ShapeError, "or 1 ints"),
    *((f, ArgumentError, "axis is given by its name") for f in (
        lambda x: x.sort(1), lambda x: F.argsort(x, -1), lambda x: (x.topk(1, True), x.topk(1, 1)), lambda x: F.sort(x, 0)
    )),
    (lambda x: F.hardtanh(x, 1.0, -1.0), ArgumentError, "must not be above"), (lambda x: F.combinations(x), ShapeError, "one axis"),
    (lambda x: F.block_diag(x[None]), ShapeError, "two axes"), (lambda x: F.cov(x[None]), ShapeError, "variables"),
])  # fmt: skip
def test_mistakes(call, error, words):
    with pytest.raises(error, match=words):
        call(F.ones((2, 3)))


def test_gumbel_softmax():
    x = Tensor(np.log(np.array([[0.2, 0.3, 0.5]] * 4000)).astype("f4"))
    hard = F.gumbel_softmax(x, tau=0.5, hard=True, dim=1).numpy()
    assert set(np.unique(hard)) == {0.0, 1.0} and (hard.sum(1) == 1).all() and np.abs(hard.mean(0) - [0.2, 0.3, 0.5]).max() < 0.03
    g = autodiff.grad(lambda x: (F.gumbel_softmax(x, hard=True) * Tensor([1.0, 2.0, 3.0])).sum())(x[:5])
    assert np.abs(g.numpy()).max() > 0.01 and np.isfinite(g.numpy()).all()


def test_every_method_is_tried():
    """Methods that are functions or ops by other names: those without an underscore that the texts here do not name stand in
    `test_pytorch_names.py`."""
    tried = {name for block in (SMOOTH, OTHERS) for name in re.findall(r"\)?\.(\w+)\(", block)}
    from tengen.tensor.pytorch_names import OF_FUNCTIONS

    assert not {n for names in OF_FUNCTIONS.values() for n in names} - tried - {"svd", "qr", "pinv", "istft", "stft"}  # test_fft.py


def test_what_is_written_to_the_data_of_data_is_written_to_the_tensor():
    """What is given `p.grad.data` may itself write to its argument's `data`, as collective operations do."""
    p = Parameter([1.0, 2.0])
    with autodiff.GradManager().attach([p]) as gm:
        gm.backward((p * p).sum())
    for x in (p, p.grad):
        x.data.data.copy_(Tensor([3.0, 4.0]))
        x.data.data[0] = 5.0
        x.data.data += 1.0
        assert x.tolist() == [6.0, 5.0]
        x.data.data = Tensor([7.0, 8.0])
        assert x.tolist() == [7.0, 8.0]


def test_data_takes_what_is_there_before_it_is_written_and_may_be_given_back():
    p = Parameter([1.0, 2.0])
    late, kept = p.data, p.data
    p._reset(Tensor([5.0, 6.0]))
    late += 1.0
    assert p.tolist() == late.tolist() == [6.0, 7.0]
    p.data, kept[0] = Tensor([0.0, 0.0]), 3.0  # the memory that p had
    assert p.tolist() == [0.0, 0.0]
    p.data = kept
    assert p.tolist() == [3.0, 2.0]
    p.data *= 3.0
    assert p.tolist() == [9.0, 6.0]
