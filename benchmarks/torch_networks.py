"""Networks of torchvision, timm and transformers with random weights, imported by `tengen.interop.torch.to_module` and run beside PyTorch;
whole detectors of torchvision by `interop.torch.interpret`, beside PyTorch's in float64: which boxes are kept follows from comparisons, and a
rounding of PyTorch's own moves them.

    python benchmarks/torch_networks.py [NAME ...] [--list] [--gradients]

prints for each network the largest difference of its outputs over their largest element, the same of the gradients of inputs and parameters
(with --gradients, else of each fourth network), and the seconds of the processor that export and import took. Needs the packages.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from transformers_networks import transformers_networks

from tengen import Tensor
from tengen.autodiff import GradManager
from tengen.interop.torch import interpret, to_module

CLASSIFICATION = (
    "alexnet vgg11_bn resnet18 resnext50_32x4d wide_resnet50_2 squeezenet1_0 densenet121 inception_v3 googlenet shufflenet_v2_x0_5 "
    "mobilenet_v2 mobilenet_v3_small mnasnet0_5 efficientnet_b0 efficientnet_v2_s regnet_y_400mf regnet_x_400mf convnext_tiny vit_b_32 "
    "swin_t swin_v2_t maxvit_t"
).split()
SEGMENTATION = "fcn_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large".split()
DETECTION = (
    "retinanet_resnet50_fpn fcos_resnet50_fpn ssdlite320_mobilenet_v3_large fasterrcnn_mobilenet_v3_large_320_fpn".split()
)
WHOLE = (
    "fasterrcnn_resnet50_fpn fasterrcnn_resnet50_fpn_v2 retinanet_resnet50_fpn fcos_resnet50_fpn ssd300_vgg16 ssdlite320_mobilenet_v3_large "
    "maskrcnn_resnet50_fpn keypointrcnn_resnet50_fpn"
).split()
TIMM = (
    "resnet26 efficientnet_lite0 vit_tiny_patch16_224 swin_tiny_patch4_window7_224 convnext_atto mobilenetv3_small_050 regnetx_002 "
    "densenet121 mixer_s32_224 deit_tiny_patch16_224"
).split()
SIDES = {"vit_b_32": 224, "maxvit_t": 224, "inception_v3": 96}


def torchvision_networks() -> Iterator[tuple[str, Callable[[], Any], tuple, dict]]:
    """(Name, what makes it, arguments, arguments by name)."""
    from torchvision import models

    for name in CLASSIFICATION:
        more = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
        side = SIDES.get(name, 64)
        yield name, lambda n=name, m=more: models.get_model(n, weights=None, **m), (torch.randn(1, 3, side, side),), {}
    for name in SEGMENTATION:
        make = lambda n=name: models.get_model(n, weights=None, weights_backbone=None)
        yield name, make, (torch.randn(1, 3, 64, 64),), {}
    for name in DETECTION:
        make = lambda n=name: Dense(models.detection.__dict__[n](weights=None, weights_backbone=None))
        yield f"{name}, without the choice of boxes", make, (torch.rand(1, 3, 96, 128),), {}


def whole_detectors() -> Iterator[tuple[str, Callable[[], Any], tuple, dict]]:
    """See `torchvision_networks`; one image of 256 x 256 each."""
    from torchvision.models import detection

    for name in WHOLE:
        more = {} if "ssd" in name else {"min_size": 256, "max_size": 256}
        more["num_classes"] = 2 if "keypoint" in name else 7
        image = torch.rand(3, 256, 256)
        make = lambda n=name, m=more, x=image: settled(detection.__dict__[n](weights=None, weights_backbone=None, **m).eval(), x)
        yield f"{name}, whole", make, ([image],), {}


LAST = "cls_logits bbox_pred bbox_reg cls_score module_list kps mask_fcn bbox_ctr".split()  # layers of heads


@torch.no_grad()
def settled(detector: torch.nn.Module, image: torch.Tensor) -> torch.nn.Module:
    """A detector whose heads give numbers around one: else with random weights all scores are 0 or 1, and nothing says which boxes to keep."""
    heads = {m for n, m in detector.named_modules() if any(k in n for k in LAST) and hasattr(m, "bias") and not n.startswith("backbone")}
    outputs: dict[torch.nn.Module, list[torch.Tensor]] = {m: [] for m in heads}
    hooks = [m.register_forward_hook(lambda m, i, o: outputs[m].append(o.flatten())) for m in heads]
    for _ in range(2):  # what a second stage sees follows from the first one's scores
        detector([image])
        for m, seen in outputs.items():
            m.weight.mul_(0.7 / torch.cat(seen).std())
            if m.bias is not None:
                m.bias.zero_()
            seen.clear()
    for hook in hooks:
        hook.remove()
    return detector


class Dense(torch.nn.Module):
    """The backbone and the head of a detector. What follows, the choice of boxes by their scores, torch.export cannot take: torchvision's
    `batched_nms` decides by how many boxes there are."""

    def __init__(self, detector: torch.nn.Module):
        super().__init__()
        self.backbone, self.head = detector.backbone, detector.rpn.head if hasattr(detector, "rpn") else detector.head

    def forward(self, image: torch.Tensor) -> Any:
        found = self.backbone(image)
        return self.head(list(found.values()) if isinstance(found, dict) else [found])


def timm_networks() -> Iterator[tuple[str, Callable[[], Any], tuple, dict]]:
    """See `torchvision_networks`."""
    import timm

    for name in TIMM:
        side = 224 if "224" in name else 64
        yield f"timm/{name}", lambda n=name: timm.create_model(n, pretrained=False), (torch.randn(1, 3, side, side),), {}


def networks() -> Iterator[tuple[str, Callable[[], Any], tuple, dict]]:
    """All of them whose package is here."""
    for family in (torchvision_networks, whole_detectors, timm_networks, transformers_networks):
        try:
            yield from family()
        except ImportError as e:
            print(f"{family.__name__}: not run, {e}", file=sys.stderr)


def taken(x: Any) -> Any:
    """Arguments with Tengen's tensors."""
    return pytree.tree_map(lambda v: Tensor(v.detach().numpy()) if isinstance(v, torch.Tensor) else v, x)


def leaves(x: Any, kind: type) -> list:
    """The tensors of a result. Results with fields are dicts in Tengen."""
    if isinstance(x, dict):
        return [t for v in x.values() for t in leaves(v, kind)]
    if isinstance(x, (list, tuple)):
        return [t for v in x for t in leaves(v, kind)]
    return [x] if isinstance(x, kind) else []


def difference(want: list, have: list) -> float:
    """The largest difference over the largest element of each."""
    assert len(want) == len(have), f"{len(have)} results, PyTorch's {len(want)}"
    worst = 0.0
    for w, h in zip(want, have):
        assert w.shape == h.shape, f"shape {h.shape}, PyTorch's {w.shape}"
        w, h = w.astype(np.float64), h.astype(np.float64)
        if w.size:
            worst = max(worst, float(np.abs(w - h).max()) / max(float(np.abs(w).max()), 1e-30))
    return worst


def paired(want: list, have: list) -> list:
    """What a detector found, in the order of the other's: boxes whose scores differ by roundings alone change places."""
    if any(w.shape != h.shape for w, h in zip(want, have)):
        return have
    rows = lambda found: np.concatenate(
        [a.reshape(len(a), -1).astype(np.float64) / max(np.abs(w).max(), 1) for a, w in zip(found, want) if w[0].size <= 16], 1
    )
    far = np.abs(rows(want)[:, None] - rows(have)).max(2)
    order = far.argmin(1)
    return [h[order] for h in have] if len(set(order)) == len(order) else have


def randomised(module: Any) -> Any:
    """Parameters that begin as zeros or ones are moved, so that what they decide is seen."""
    for p in module.parameters():
        if p.is_floating_point() and p.numel() and float(p.std(correction=0)) == 0:
            p.data += 0.1 * torch.randn_like(p)
    return module.eval()


def gradients(module: Any, net: Any, args: tuple, kwargs: dict) -> float:
    """The difference of all gradients of a weighted sum of the outputs, over the largest one."""
    module.zero_grad()
    outs = [o for o in leaves(pytree.tree_leaves(module(*args, **kwargs)), torch.Tensor) if o.is_floating_point()]
    weights = [torch.randn_like(o) for o in outs]
    sum((o * w).sum() for o, w in zip(outs, weights) if o.requires_grad).backward()
    want = {n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}
    gm = GradManager().attach(list(net.parameters()))
    with gm:
        have = [o for o in leaves(net(*taken(args), **taken(kwargs)), Tensor) if o.dtype.is_inexact]
        assert len(have) == len(outs)
        loss: Any = None
        for o, w, theirs in zip(have, weights, outs):
            if not theirs.requires_grad:  # a state for the next call, which PyTorch detaches
                continue
            part = (o * Tensor(w.numpy())).sum()
            loss = part if loss is None else loss + part
        gm.backward(loss)
    found = dict(net.named_parameters())
    largest = max(1e-30, *(float(np.abs(g).max()) for g in want.values()))
    return max(float(np.abs(g - found[n].grad.numpy()).max()) / largest for n, g in want.items() if n in found)


def main() -> int:
    """Prints the table; the exit status is 1 where a network fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="networks; default: all")
    parser.add_argument("--list", action="store_true", help="print the names alone")
    parser.add_argument("--gradients", action="store_true", help="gradients of all of them")
    parser.add_argument("--trace", action="store_true", help="tracebacks of failures")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    failed = 0
    for i, (name, make, args, kwargs) in enumerate(networks()):
        if options.list:
            print(name)
            continue
        if options.names and name not in options.names:
            continue
        try:
            torch.manual_seed(i)
            module = make() if (whole := name.endswith("whole")) else randomised(make())
            exact = (copy.deepcopy(module).double(), pytree.tree_map(torch.Tensor.double, args)) if whole else (module, args)
            with torch.no_grad():
                want = leaves(pytree.tree_leaves(exact[0](*exact[1], **kwargs)), torch.Tensor)
            start = time.process_time()
            net = interpret(module) if whole else to_module(module, args, kwargs, training=False)
            seconds = time.process_time() - start
            outputs = [w.numpy() for w in want], [h.numpy() for h in leaves(net(*taken(args), **taken(kwargs)), Tensor)]
            error = difference(outputs[0], paired(*outputs) if whole else outputs[1])
            slope = ""
            if (options.gradients or i % 3 == 0) and not whole:
                slope = f", gradients {gradients(module, net, args, kwargs):.1e}"
            print(f"{name}: outputs {error:.1e}{slope}; imported in {seconds:.1f} s", flush=True)
            failed += error > 1e-3
        except Exception as e:
            failed += 1
            lines = f"{type(e).__name__}: {e}".splitlines()
            print(f"{name}: FAILED {' | '.join([*lines[:12], *getattr(e, '__notes__', [])])}", flush=True)
            if options.trace:
                traceback.print_exc()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
