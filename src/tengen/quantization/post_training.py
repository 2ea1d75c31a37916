"""The short road: `ptq`, from a trained network and some data to a program that multiplies integers of 8 bits.

In: a module or a function of tensors, whose forward may be any Python that records; inputs like those that it will get. The
graph is quantised, not the modules. Out: `Quantized`, a graph to be called and saved. `auto_mix` keeps layers in float32 until
a drop of accuracy is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tengen.base.errors import TengenError, UsageWarning, warn_once
from tengen.deploy.graphs import Graph
from tengen.quantization.attentions import find_attentions
from tengen.quantization.calibrators import CALIBRATORS
from tengen.quantization.dtypes import QuantizationError
from tengen.quantization.folding import fold_affine
from tengen.quantization.layers import Layer, Measured, find_layers, replaced, switched
from tengen.quantization.modes import evaluating
from tengen.quantization.requantising import requantise
from tengen.quantization.rounding import learn_rounding
from tengen.tensor import Tensor

Batch = tuple[np.ndarray, ...]
Metric = Callable[[list[np.ndarray]], float]


class Quantized:
    """A quantised program: call it like the network that it was made of.

    Attributes:
        graph: the program, a `tengen.Graph`. layers: what was found, `Layer` or `Attention` each, with scales and errors.
        float_score, score: the metric of the network in float32 and of this program, in percent.
    """

    def __init__(self, graph: Graph, layers: list[Measured], float_score: float, score: float):
        self.graph, self.layers, self.float_score, self.score = graph, layers, float_score, score

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.graph(*args, **kwargs)

    def save(self, file: Any) -> Any:
        """Writes the program as a model file, which `tengen.load_graph` reads and `tengen compile` compiles."""
        return self.graph.save(file)

    @property
    def in_float(self) -> list[Measured]:
        """The layers that stayed in float32."""
        return [layer for layer in self.layers if layer.why_float]

    def __repr__(self) -> str:
        done = len(self.layers) - len(self.in_float)
        return (
            f"<quantized: {done} of {len(self.layers)} layers by integers, {self.score:.2f} % against {self.float_score:.2f} %>"
        )


def batches_of(data: Any) -> list[Batch]:
    """Data as a list of batches, each a tuple of arrays.

    Errors: QuantizationError where there is none
    """
    if isinstance(data, (Tensor, np.ndarray)):
        data = [data]
    if not isinstance(data, Iterable):
        raise TypeError(f"data must be a tensor, an array, or batches of them, got a {type(data).__name__}")
    plain = lambda x: x.numpy() if isinstance(x, Tensor) else np.asarray(x)
    found = [tuple(map(plain, b)) if isinstance(b, (tuple, list)) else (plain(b),) for b in data]
    found = [b for b in found if all(x.size for x in b)]
    if not found:
        raise QuantizationError("calibration needs data: there is no batch, or none with an element")
    return found


class Road:
    """A network on its way: its graph in float32, its layers, the data, and how programs are scored.

    Args: as of `ptq`.
    """

    def __init__(
        self,
        model: Any,
        data: Any,
        labels: Any,
        metric: Metric | None,
        calibrator: str,
        asymmetric: bool,
        bias_correction: bool,
        adaround: int,
        equalize: bool = False,
    ):
        if type(adaround) is not int or adaround < 0:
            raise QuantizationError(f"adaround={adaround!r}: a number of steps, 0 or more")
        if calibrator not in CALIBRATORS:
            raise QuantizationError(f"unknown calibrator {calibrator!r}; help: one of {', '.join(CALIBRATORS)}")
        self.batches = batches_of(data)
        with evaluating(model):
            self.graph = Graph.of(model, *(Tensor(x) for x in self.batches[0]))
        self._open(len({tuple(x.shape for x in b) for b in self.batches}) > 1)
        self.outputs = [self._run(self.graph, b) for b in self.batches]  # of the network as it was given
        self.graph = fold_affine(self.graph)
        self.layers: list[Measured] = sorted([*find_layers(self.graph), *find_attentions(self.graph)], key=lambda layer: layer.index)
        self._calibrate(calibrator, asymmetric, bias_correction, adaround, equalize)
        self.metric = metric or _accuracy(self.outputs, labels)
        self.float_score = self.score_of(self.outputs)

    def _open(self, must: bool) -> None:
        """Lets the graph take any batch; where it does not, and need not, it takes the batches' own."""
        try:
            self.graph.set_batch("batch")
        except TengenError as e:
            if not must:
                return
            raise QuantizationError(
                f"batches differ in size, and the network does not take any: {e}; help: batches of one size"
            ) from e

    @staticmethod
    def _run(graph: Graph, batch: Batch) -> np.ndarray:
        made = graph(*(Tensor(x) for x in batch))
        return (made[0] if isinstance(made, (tuple, list)) else made).numpy()

    def _calibrate(self, calibrator: str, asymmetric: bool, correct: bool, adaround: int, equalize: bool) -> None:
        able = [layer for layer in self.layers if not layer.why_float]
        self._watch(able, able)
        forms = [able] + ([[layer.equalized() for layer in able]] if equalize else [])
        for form in forms[1:]:
            self._watch(able, form)
        for layer in {id(layer): layer for form in forms for layer in form}.values():
            layer.calibrate(calibrator, asymmetric)
        for inputs in self.inputs(able):
            for i, xs in enumerate(inputs):
                for layer in {id(form[i]): form[i] for form in forms}.values():
                    if adaround and isinstance(layer, Layer):
                        learn_rounding(layer, layer.balanced(xs[0]), adaround)
                    layer.compare(correct, *xs)
            break  # one batch says enough
        better = {id(able[i]): max((form[i] for form in forms), key=lambda layer: layer.sqnr) for i in range(len(able))}
        self.layers = [better.get(id(layer), layer) for layer in self.layers]

    def _watch(self, layers: Sequence[Measured], form: Sequence[Measured]) -> None:
        """Calibrates layers, or another form of each, on what they read."""
        some = [i for i, layer in enumerate(form) if layer is not layers[i] or form is layers]
        for inputs in self.inputs(layers):
            for i in some:
                form[i].watch(*inputs[i])

    def inputs(self, layers: Sequence[Measured]) -> Iterator[list[tuple[np.ndarray, ...]]]:
        """For each batch, what each of the layers reads."""
        g = self.graph.copy()
        read = [layer.inputs(g.nodes[layer.index]) for layer in layers]
        for i, values in enumerate(read):
            for j, v in enumerate(values):
                g.add_output(f"input {j} of layer {i}", v)
        for batch in self.batches:
            made = g(*(Tensor(x) for x in batch))
            made = made if isinstance(made, (tuple, list)) else (made,)
            arrays = iter([t.numpy() for t in made[len(made) - sum(map(len, read)) :]])
            yield [tuple(next(arrays) for _ in values) for values in read]

    def program(self, chosen: Callable[[Measured], bool]) -> Graph:
        """The graph with the chosen layers by integers."""
        return replaced(self.graph, self.layers, chosen)

    def score_of(self, outputs: list[np.ndarray]) -> float:
        """The metric of results. Errors: QuantizationError where it is no number"""
        score = self.metric(outputs)
        try:
            number = float(score)
        except (TypeError, ValueError):
            number = float("nan")
        if not np.isfinite(number):
            raise QuantizationError(f"the metric gives {score!r}; help: a finite number of percent")
        return number

    def scored(self, graph: Graph, *more: np.ndarray) -> tuple[float, float]:
        """(the metric of a program, its squared error against float32). more: inputs behind those of the data."""
        outputs = [self._run(graph, (*b, *more)) for b in self.batches]
        error = sum(float(((a.astype(np.float64) - b) ** 2).sum()) for a, b in zip(outputs, self.outputs))
        return self.score_of(outputs), error

    def mixed(self, drop: float) -> Quantized:
        """The program that loses at most `drop` percent by a set of layers in float32, from which no single one can be left out.

        A bisection finds how many of the most sensitive layers are enough; `smallest` returns what it can of them to integers.
        One program with switches measures all choices: three programs are made in all.
        """
        g = self.program(lambda layer: True)
        score, _ = self.scored(g)
        if self.float_score - score <= drop:
            return self._finished(g, score, drop)
        able = [layer for layer in self.layers if not layer.why_float]
        both = switched(self.graph, self.layers)
        measured = lambda ints: self.scored(both, *(np.array(i in ints) for i in range(len(able))))
        alone = [measured({i}) for i in range(len(able))]
        harm = [(self.float_score - score, error) for score, error in alone]
        worst = sorted(range(len(able)), key=harm.__getitem__, reverse=True)
        lost = lambda kept: self.float_score - measured({*worst} - {*kept})[0]
        low, high = 0, len(worst)
        while low < high:
            count = (low + high) // 2
            if lost(worst[:count]) <= drop:
                high = count
            else:
                low = count + 1
        kept = smallest(worst[:high], lost, drop)
        g = self.program(lambda layer: not any(layer is able[i] for i in kept))
        score, _ = self.scored(g)
        for i, loss in kept.items():
            able[i].why_float = (
                f"by integers as well, the drop is {loss:.2f} % ({drop:g} % asked for); it alone costs {harm[i][0]:.2f} %"
            )
        return self._finished(g, score, drop)

    def _finished(self, g: Graph, score: float, drop: float) -> Quantized:
        """The program whose sums are requantised, if it loses no more than `drop` either; else the given one, of a known score."""
        made = requantise(g)
        number = self.scored(made)[0]
        if self.float_score - number <= drop:
            g, score = made, number
        return Quantized(g, self.layers, self.float_score, score)


def smallest(kept: Sequence[int], lost: Callable[[Sequence[int]], float], drop: float) -> dict[int, float]:
    """A part of a set of layers in float32 that loses at most `drop`, of which no single layer can be by integers as well.

    Args: kept: the set, which holds the drop, the most harmful layer first. lost: a set -> what it loses.
    Returns: each layer of the part, and what would be lost without it in float32.
    """
    tried, refused = [*reversed(kept)], {}  # the least harmful first; those refused with the set as it is now
    while len(refused) < len(tried):
        layer, *others = tried
        loss = lost(others)
        if loss <= drop:
            tried, refused = others, {}
        else:
            tried, refused = [*others, layer], refused | {layer: loss}
    return refused


def _accuracy(outputs: list[np.ndarray], labels: Any) -> Metric:
    """The share of rows whose largest element is at the label; without labels, where float32 has it."""
    if outputs[0].ndim < 1 or outputs[0].shape[-1] < 2:
        if labels is not None:
            raise QuantizationError("labels need results with a number for each class; help: metric=...")
        size = sum(float((o.astype(np.float64) ** 2).sum()) for o in outputs) or 1.0
        error = lambda found: sum(float(((a.astype(np.float64) - b) ** 2).sum()) for a, b in zip(found, outputs))
        return lambda found: 100 * (1 - (error(found) / size) ** 0.5)
    rows = lambda found: np.concatenate([o.argmax(-1).reshape(-1) for o in found])
    wanted = (
        rows(outputs) if labels is None else np.asarray(labels.numpy() if isinstance(labels, Tensor) else labels).reshape(-1)
    )
    if len(wanted) != len(rows(outputs)):
        raise QuantizationError(f"there are {len(wanted)} labels for {len(rows(outputs))} rows of results")
    classes = outputs[0].shape[-1]
    bad = [w for w in wanted.tolist() if not (isinstance(w, (int, float)) and w in range(classes))]
    if bad:
        raise QuantizationError(f"a label is {bad[0]!r}; help: integers from 0 to {classes - 1}, or metric=...")
    return lambda found: 100 * float((rows(found) == wanted).mean())


def ptq(
    model: Any, data: Any, budget_drop: float | None = 0.5, *, labels: Any = None, metric: Metric | None = None, calibrator: str = "mse",
    asymmetric: bool = False, bias_correction: bool = True, adaround: int = 0, equalize: bool = False,
) -> Quantized:  # fmt: skip
    """A trained network as a program that multiplies integers of 8 bits.

    Batch norms, and other factors and shifts of channels, are folded into the layers before them. Weights have a scale for each output
    channel, inputs of layers one scale, which a calibrator chooses from what they were on the data. Attention without a mask is a layer, too:
    its queries, keys and values become integers (`attention_int`). Sums become the next layer's
    integers by one multiplication where only layers by integers and additions read them; the rest is computed in float32, in the
    kernels of the layers.

    Args:
        model: a module, or a function of tensors. It is recorded in evaluation, and stays as it is.
        data: inputs: a tensor or array, or batches of them; a batch for several inputs is a tuple.
        budget_drop: so many percent of accuracy may be lost; where all layers cost more, some of the most sensitive stay in
            float32, none of which can be by integers as well without a greater loss. A smaller set of others may exist.
            None: all layers by integers, whatever they cost.
        labels: the right class of each row of results, for the accuracy. Without them it is agreement with float32 on the
            largest element (of results with a single column: 100 less the relative error).
        metric: a function of the results, an array for each batch -> percent, in place of accuracy.
        calibrator: "minmax", "moving_average", "percentile", "kl" or "mse". asymmetric: inputs have zero points.
            bias_correction: mean errors of output channels on the first batch are taken off. adaround: so many steps learn,
            layer by layer on the first batch, which weights are rounded up and which down (200 do); 0: each to the nearest.
        equalize: input channels of different ranges are brought to about one, where that makes a layer's error on the first batch
            less: they are divided by powers of two, and the weights multiplied. It costs no time. Such a layer has a scale for each
            channel of its input, which TFLite files cannot say.

    Errors: QuantizationError without data, for NaN and inf in it, an unknown calibrator, labels that do not fit, a metric that
        gives no number, layers whose results in float32 are NaN or inf. UsageWarning, with the reason, where no layer is
        computed by integers

    >>> import numpy as np
    >>> from tengen import module as M
    >>> from tengen.quantization import ptq
    >>> ptq(M.Sequential(M.Linear(8, 4)), np.ones((5, 8), "float32"))
    <quantized: 1 of 1 layers by integers, 100.00 % against 100.00 %>
    """
    if budget_drop is not None and (isinstance(budget_drop, str) or not budget_drop >= 0):
        raise QuantizationError(f"budget_drop={budget_drop!r}: percent of accuracy, 0 or more; None looks at none")
    road = Road(model, data, labels, metric, calibrator, asymmetric, bias_correction, adaround, equalize)
    if budget_drop is not None:
        made = road.mixed(budget_drop)
    else:
        g = requantise(road.program(lambda layer: True))
        made = Quantized(g, road.layers, road.float_score, road.scored(g)[0])
    if len(made.in_float) == len(made.layers):
        why = "; ".join(f"{layer.name}: {layer.why_float}" for layer in made.layers[:3])
        warn_once(f"ptq(): no layer is computed by integers; {why or 'no product and no convolution has constant weights'}", UsageWarning)
    return made


def auto_mix(model: Any, data: Any, drop: float = 0.5, **more: Any) -> Quantized:
    """`ptq` with the drop of accuracy as its subject: the layers that stay in float32 are chosen by their measured sensitivity,
    and none of them can be by integers as well without a greater drop.

    Args: model, data: as of `ptq`, and so are all others. drop: percent of accuracy that may be lost.
    """
    return ptq(model, data, drop, **more)
