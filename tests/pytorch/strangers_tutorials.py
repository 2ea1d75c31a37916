"""Programs in the ways of public repositories, as those of `strangers_public.py`: segmentation, explanations, splats."""

import collections
import copy
import math
from functools import partial

import numpy as np
from strangers import begin, classes, some


def segmentation(torch, compiled=False):
    """DeepLab: dilated convolutions, groups of rates, a poly schedule, hard pixels, Dice and Lovasz losses, a matrix of confusion."""
    nn, F = torch.nn, torch.nn.functional

    class ASPPConv(nn.Sequential):
        def __init__(self, cin, cout, dilation):
            super().__init__(nn.Conv2d(cin, cout, 3, padding=dilation, dilation=dilation, bias=False), nn.BatchNorm2d(cout), nn.ReLU())

    class ASPPPooling(nn.Sequential):
        def __init__(self, cin, cout):
            super().__init__(nn.AdaptiveAvgPool2d(1), nn.Conv2d(cin, cout, 1, bias=False), nn.GroupNorm(1, cout), nn.ReLU())

        def forward(self, x):
            size = x.shape[-2:]
            for mod in self:
                x = mod(x)
            return F.interpolate(x, size=size, mode="bilinear", align_corners=False)

    class ASPP(nn.Module):
        def __init__(self, cin, atrous_rates, cout):
            super().__init__()
            modules = [nn.Sequential(nn.Conv2d(cin, cout, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())]
            modules += [ASPPConv(cin, cout, rate) for rate in tuple(atrous_rates)]
            modules.append(ASPPPooling(cin, cout))
            self.convs = nn.ModuleList(modules)
            self.project = nn.Sequential(nn.Conv2d(len(self.convs) * cout, cout, 1), nn.BatchNorm2d(cout), nn.ReLU(), nn.Dropout2d(0.0))

        def forward(self, x):
            return self.project(torch.cat([conv(x) for conv in self.convs], dim=1))

    class IntermediateLayerGetter(nn.ModuleDict):
        def __init__(self, model, return_layers):
            layers, left = collections.OrderedDict(), dict(return_layers)
            for name, module in model.named_children():
                layers[name] = module
                left.pop(name, None)
                if not left:
                    break
            super().__init__(layers)
            self.return_layers = return_layers

        def forward(self, x):
            out = collections.OrderedDict()
            for name, module in self.items():
                x = module(x)
                if name in self.return_layers:
                    out[self.return_layers[name]] = x
            return out

    class DeepLab(nn.Module):
        def __init__(self, num_classes):
            super().__init__()
            trunk = nn.Sequential(collections.OrderedDict([
                ("stem", nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU6(inplace=True))),
                ("layer1", nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.Conv2d(6, 8, 1), nn.BatchNorm2d(8), nn.Hardswish())),
                ("layer2", nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU(inplace=True))), ("fc", nn.Linear(8, 2)),
            ]))  # fmt: skip
            self.backbone = IntermediateLayerGetter(trunk, {"layer1": "low", "layer2": "out"})
            self.classifier = nn.Sequential(ASPP(8, [1, 2], 6), nn.Conv2d(6, num_classes, 1))
            self.aux = nn.Conv2d(8, num_classes, 1)

        def forward(self, x):
            input_shape, features = x.shape[-2:], self.backbone(x)
            low = F.max_pool2d(features["low"], kernel_size=2, ceil_mode=True)
            masks = self.classifier(features["out"] + low)
            up = partial(F.interpolate, size=input_shape, mode="bilinear", align_corners=True)
            return {"out": up(masks), "aux": up(self.aux(features["out"]))}

    class OhemCELoss(nn.Module):
        def __init__(self, thresh, n_min, ignore_lb=255):
            super().__init__()
            self.thresh, self.n_min, self.ignore_lb = -torch.log(torch.tensor(thresh, dtype=torch.float)), n_min, ignore_lb
            self.criteria = nn.CrossEntropyLoss(ignore_index=ignore_lb, reduction="none")

        def forward(self, logits, labels):
            loss = self.criteria(logits, labels).view(-1)
            loss, _ = torch.sort(loss, descending=True)
            loss = loss[loss > self.thresh] if loss[self.n_min] > self.thresh else loss[: self.n_min]
            return torch.mean(loss)

    def dice_loss(pred, target, smooth=1.0, ignore=255):
        valid = (target != ignore).unsqueeze(1)
        one_hot = F.one_hot(torch.where(target == ignore, 0, target), pred.shape[1]).permute(0, 3, 1, 2).to(pred.dtype)
        probs = pred.softmax(1) * valid
        one_hot = one_hot * valid
        inter, union = (probs * one_hot).sum((0, 2, 3)), (probs + one_hot).sum(dim=(0, 2, 3))
        return 1 - ((2.0 * inter + smooth) / (union + smooth)).mean()

    def lovasz_grad(gt_sorted):
        p, gts = len(gt_sorted), gt_sorted.sum()
        intersection, union = gts - gt_sorted.float().cumsum(0), gts + (1 - gt_sorted).float().cumsum(0)
        jaccard = 1.0 - intersection / union
        if p > 1:
            jaccard[1:p] = jaccard[1:p] - jaccard[0:-1]
        return jaccard

    def lovasz_softmax_flat(probas, labels):
        losses = []
        for c in range(probas.size(1)):
            fg = (labels == c).float()
            if fg.sum() == 0:
                continue
            errors = (fg - probas[:, c]).abs()
            errors_sorted, perm = torch.sort(errors, 0, descending=True)
            losses.append(torch.dot(errors_sorted, lovasz_grad(fg[perm.data])))
        return torch.stack(losses).mean()

    class ConfusionMatrix:
        def __init__(self, num_classes):
            self.n, self.mat = num_classes, None

        def update(self, a, b):
            if self.mat is None:
                self.mat = torch.zeros((self.n, self.n), dtype=torch.int64, device=a.device)
            with torch.inference_mode():
                k = (a >= 0) & (a < self.n)
                inds = self.n * a[k].to(torch.int64) + b[k]
                self.mat += torch.bincount(inds, minlength=self.n**2).reshape(self.n, self.n)

        def compute(self):
            h = self.mat.float()
            return torch.diag(h).sum() / h.sum(), torch.diag(h) / h.sum(1), torch.diag(h) / (h.sum(1) + h.sum(0) - torch.diag(h))

        def __str__(self):
            acc_global, acc, iu = self.compute()
            return ("global correct: {:.1f}\naverage row correct: {}\nmean IoU: {:.1f}").format(
                acc_global.item() * 100, [f"{i:.1f}" for i in (acc * 100).tolist()], iu.mean().item() * 100
            )

    net = nn.SyncBatchNorm.convert_sync_batchnorm(DeepLab(4)) if False else begin(torch, DeepLab(4))
    params_to_optimize = [
        {"params": [p for p in net.backbone.parameters() if p.requires_grad], "lr": 0.01},
        {"params": [p for p in net.classifier.parameters() if p.requires_grad]},
        {"params": [p for p in net.aux.parameters() if p.requires_grad], "lr": 0.02 * 10},
    ]
    optimizer = torch.optim.SGD(params_to_optimize, lr=0.02, momentum=0.9, weight_decay=1e-4, nesterov=True)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=2)
    main = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4, power=0.9)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, schedulers=[warm, main], milestones=[2])
    image, out = some(torch, 2, 3, 16, 16), []
    target = classes(torch, (2, 16, 16), 4)
    target[:, :2] = 255
    ohem, weight = OhemCELoss(0.7, 2 * 16 * 16 // 16), torch.tensor([1.0, 2.0, 0.5, 1.0])
    run = torch.compile(net, backend="eager") if compiled else net
    for _ in range(4):
        net.train()
        found = run(image)
        losses = {name: F.cross_entropy(x, target, weight=weight, ignore_index=255) for name, x in found.items()}
        flat, keep = found["out"].softmax(1).permute(0, 2, 3, 1).reshape(-1, 4), target.view(-1) != 255
        extra = ohem(found["out"], target) + dice_loss(found["out"], target) + lovasz_softmax_flat(flat[keep], target.view(-1)[keep])
        loss = losses["out"] + 0.5 * losses["aux"] + extra
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        out += [loss.item(), extra.item(), *scheduler.get_last_lr()]
    net.eval()
    confmat = ConfusionMatrix(4)
    with torch.inference_mode():
        output = run(image)["out"]
        confmat.update(target.flatten(), output.argmax(1).flatten())
    acc, _each, iou = confmat.compute()
    assert str(confmat).startswith("global correct: ")
    return [*out, acc.item(), *torch.nan_to_num(iou).tolist(), float(confmat.mat.sum())]


def explanations(torch, compiled=False):
    """Grad-CAM by hooks, guided backpropagation, integrated gradients, smoothed gradients, a saliency, occlusion, FGSM and PGD."""
    nn, F = torch.nn, torch.nn.functional

    class GradCAM:
        def __init__(self, model, target_layer):
            self.model, self.gradients, self.activations = model, None, None
            self.handles = [target_layer.register_forward_hook(self.save_activation)]
            self.handles.append(target_layer.register_full_backward_hook(self.save_gradient))

        def save_activation(self, module, input, output):
            self.activations = output

        def save_gradient(self, module, grad_input, grad_output):
            self.gradients = grad_output[0]

        def __call__(self, x, index=None):
            self.model.zero_grad()
            output = self.model(x)
            if index is None:
                index = np.argmax(output.cpu().data.numpy(), axis=-1)
            one_hot = np.zeros(output.size(), dtype=np.float32)
            one_hot[np.arange(len(x)), index] = 1
            one_hot = torch.from_numpy(one_hot).requires_grad_(True)
            torch.sum(one_hot * output).backward(retain_graph=True)
            weights = self.gradients.mean(dim=[2, 3], keepdim=True)
            cam = F.relu((weights * self.activations).sum(dim=1, keepdim=True))
            cam = F.interpolate(cam, x.shape[2:], mode="bilinear", align_corners=False)
            cam -= cam.min()
            return (cam / cam.max()).detach().cpu().numpy()

        def release(self):
            for handle in self.handles:
                handle.remove()

    class GuidedReLU(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input_img):
            positive_mask = (input_img > 0).type_as(input_img)
            output = torch.addcmul(torch.zeros(input_img.size()).type_as(input_img), input_img, positive_mask)
            ctx.save_for_backward(input_img, output)
            return output

        @staticmethod
        def backward(ctx, grad_output):
            input_img, _output = ctx.saved_tensors
            mask_1, mask_2 = (input_img > 0).type_as(grad_output), (grad_output > 0).type_as(grad_output)
            zeros = torch.zeros(input_img.size()).type_as(input_img)
            return torch.addcmul(zeros, torch.addcmul(zeros, grad_output, mask_1), mask_2)

    def recursive_relu_apply(module_top):
        for idx, module in module_top._modules.items():
            recursive_relu_apply(module)
            if module.__class__.__name__ == "ReLU":
                module_top._modules[idx] = GuidedReLU.apply

    def integrated_gradients(model, x, target, baseline=None, steps=8):
        baseline = torch.zeros_like(x) if baseline is None else baseline
        alphas = torch.linspace(0, 1, steps + 1)[1:] - 0.5 / steps
        path = torch.stack([baseline + a * (x - baseline) for a in alphas]).requires_grad_(True)
        scores = model(path.flatten(0, 1)).view(steps, len(x), -1).gather(2, target.expand(steps, -1).unsqueeze(-1))
        (grads,) = torch.autograd.grad(torch.unbind(scores.sum((1, 2))), path, grad_outputs=[torch.tensor(1.0)] * steps)
        return (x - baseline) * grads.mean(0)

    def pgd(model, images, labels, eps=0.3, alpha=0.1, iters=3):
        loss_fn, ori_images = nn.CrossEntropyLoss(), images.data
        for _ in range(iters):
            images.requires_grad = True
            outputs = model(images)
            model.zero_grad()
            cost = loss_fn(outputs, labels)
            cost.backward()
            adv_images = images + alpha * images.grad.sign()
            eta = torch.clamp(adv_images - ori_images, min=-eps, max=eps)
            images = torch.clamp(ori_images + eta, min=-2, max=2).detach_()
        return images

    net = nn.Sequential(collections.OrderedDict([
        ("features", nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3), nn.ReLU())),
        ("pool", nn.AdaptiveMaxPool2d(2)), ("flat", nn.Flatten()), ("head", nn.Linear(32, 4)),
    ]))  # fmt: skip
    begin(torch, net).eval()
    x, out = some(torch, 3, 3, 10, 10), []
    cam = GradCAM(net, net.features[-1])
    heat = cam(x)
    out += [heat.mean(), heat.std(), cam.gradients.abs().sum().item()]
    out += [cam(x, index=2).mean()]
    cam.release()
    del cam
    net.zero_grad()
    labels = net(x).argmax(dim=1)
    run = torch.compile(net, backend="eager") if compiled else net

    x.requires_grad_()
    run(x).max(dim=-1).values.sum().backward()
    saliency, _ = torch.max(x.grad.data.abs(), dim=1)
    out += [saliency.sum().item(), saliency.flatten(1).topk(3)[0].sum().item()]
    x.grad.data.zero_()
    total = torch.zeros_like(x)
    for i in range(3):
        noisy = (x.detach() + 0.1 * some(torch, 3, 3, 10, 10, seed=40 + i)).requires_grad_()
        score = run(noisy)[torch.arange(3), labels]
        score.backward(gradient=torch.ones_like(score))
        total += noisy.grad
    out += [(total / 3).pow(2).sum().sqrt().item()]

    attributions = integrated_gradients(net, x.detach(), labels)
    delta = net(x)[range(3), labels] - net(torch.zeros_like(x))[range(3), labels]
    out += [attributions.sum().item(), delta.sum().item()]
    heatmap = -torch.ones(5, 5)
    with torch.no_grad():
        for h in range(5):
            for w in range(5):
                covered = x.clone()
                covered[:, :, 2 * h : 2 * h + 2, 2 * w : 2 * w + 2] = 0
                heatmap[h, w] = F.softmax(net(covered), dim=1).tolist()[0][int(labels[0])]
    out += [heatmap.min().item(), heatmap.argmin().item(), float(np.unravel_index(int(heatmap.argmax()), (5, 5))[0])]
    adversarial = pgd(run, x.detach().clone(), labels)
    out += [adversarial.sub(x).abs().max().item(), F.cross_entropy(net(adversarial), labels).item()]

    guided = copy.deepcopy(net)
    recursive_relu_apply(guided)
    given = x.detach().clone().requires_grad_(True)
    guided(given)[:, 1].sum().backward()
    image = given.grad.cpu().data.numpy()[0].transpose((1, 2, 0))
    image = (image - image.mean()) / (image.std() + 1e-5)
    return [*out, given.grad.norm().item(), float(image.max())]


def splats(torch, compiled=False):
    """Gaussian splatting in a plane: groups by name, covariances of quaternions, sorted blending, SSIM, an optimizer's state cut and joined."""
    nn, F = torch.nn, torch.nn.functional

    def inverse_sigmoid(x):
        return torch.log(x / (1 - x))

    def build_rotation(r):
        norm = torch.sqrt(r[:, 0] * r[:, 0] + r[:, 1] * r[:, 1] + r[:, 2] * r[:, 2] + r[:, 3] * r[:, 3])
        q = r / norm[:, None]
        R = torch.zeros((q.size(0), 3, 3), device="cpu")
        r, x, y, z = (q[:, i] for i in range(4))
        R[:, 0, 0] = 1 - 2 * (y * y + z * z)
        R[:, 0, 1] = 2 * (x * y - r * z)
        R[:, 0, 2] = 2 * (x * z + r * y)
        R[:, 1, 0] = 2 * (x * y + r * z)
        R[:, 1, 1] = 1 - 2 * (x * x + z * z)
        R[:, 1, 2] = 2 * (y * z - r * x)
        R[:, 2, 0] = 2 * (x * z - r * y)
        R[:, 2, 1] = 2 * (y * z + r * x)
        R[:, 2, 2] = 1 - 2 * (x * x + y * y)
        return R

    def build_scaling_rotation(s, r):
        L = torch.zeros((s.shape[0], 3, 3), dtype=torch.float)
        R = build_rotation(r)
        L[:, 0, 0], L[:, 1, 1], L[:, 2, 2] = s[:, 0], s[:, 1], s[:, 2]
        return R @ L

    class GaussianModel:
        def setup_functions(self):
            self.scaling_activation, self.scaling_inverse_activation = torch.exp, torch.log
            self.opacity_activation, self.rotation_activation = torch.sigmoid, torch.nn.functional.normalize

        def __init__(self, n):
            self._xyz = self._opacity = self._scaling = self._rotation = self._features = torch.empty(0)
            self.setup_functions()
            rng = np.random.RandomState(4)
            fused = torch.tensor(np.asarray(rng.uniform(-1, 1, (n, 3)))).float()
            dist2 = torch.clamp_min(torch.cdist(fused, fused).fill_diagonal_(float("inf")).min(1)[0] ** 2, 0.0000001)
            scales = torch.log(torch.sqrt(dist2))[..., None].repeat(1, 3)
            rots = torch.zeros((n, 4))
            rots[:, 0] = 1
            rots += 0.1 * torch.from_numpy(rng.standard_normal((n, 4)).astype(np.float32))
            opacities = inverse_sigmoid(0.1 * torch.ones((n, 1), dtype=torch.float))
            self._xyz, self._scaling = nn.Parameter(fused.requires_grad_(True)), nn.Parameter(scales.requires_grad_(True))
            self._rotation, self._opacity = nn.Parameter(rots.requires_grad_(True)), nn.Parameter(opacities.requires_grad_(True))
            self._features = nn.Parameter(torch.from_numpy(rng.rand(n, 3).astype(np.float32)).requires_grad_(True))

        def training_setup(self):
            self.xyz_gradient_accum, self.denom = torch.zeros((len(self._xyz), 1)), torch.zeros((len(self._xyz), 1))
            names = {"xyz": (self._xyz, 0.02), "f": (self._features, 0.05), "opacity": (self._opacity, 0.05),
                     "scaling": (self._scaling, 0.02), "rotation": (self._rotation, 0.01)}  # fmt: skip
            self.optimizer = torch.optim.Adam([{"params": [p], "lr": lr, "name": n} for n, (p, lr) in names.items()], lr=0.0, eps=1e-15)

        def covariance(self):
            L = build_scaling_rotation(self.scaling_activation(self._scaling), self._rotation)
            return L @ L.transpose(1, 2)

        def take(self, tensors):
            self._xyz, self._features, self._opacity = tensors["xyz"], tensors["f"], tensors["opacity"]
            self._scaling, self._rotation = tensors["scaling"], tensors["rotation"]

        def replace_tensor_to_optimizer(self, tensor, name):
            optimizable_tensors = {}
            for group in self.optimizer.param_groups:
                if group["name"] == name:
                    stored_state = self.optimizer.state.get(group["params"][0], None)
                    stored_state["exp_avg"], stored_state["exp_avg_sq"] = torch.zeros_like(tensor), torch.zeros_like(tensor)
                    del self.optimizer.state[group["params"][0]]
                    group["params"][0] = nn.Parameter(tensor.requires_grad_(True))
                    self.optimizer.state[group["params"][0]] = stored_state
                    optimizable_tensors[group["name"]] = group["params"][0]
            return optimizable_tensors

        def reset_opacity(self):
            opacity = inverse_sigmoid(torch.min(self.opacity_activation(self._opacity), torch.ones_like(self._opacity) * 0.11))
            self._opacity = self.replace_tensor_to_optimizer(opacity.detach(), "opacity")["opacity"]

        def prune_points(self, mask):
            valid, tensors = ~mask, {}
            for group in self.optimizer.param_groups:
                stored_state = self.optimizer.state.get(group["params"][0], None)
                if stored_state is not None:
                    stored_state["exp_avg"] = stored_state["exp_avg"][valid]
                    stored_state["exp_avg_sq"] = stored_state["exp_avg_sq"][valid]
                    del self.optimizer.state[group["params"][0]]
                    group["params"][0] = nn.Parameter(group["params"][0][valid].requires_grad_(True))
                    self.optimizer.state[group["params"][0]] = stored_state
                else:
                    group["params"][0] = nn.Parameter(group["params"][0][valid].requires_grad_(True))
                tensors[group["name"]] = group["params"][0]
            self.take(tensors)
            self.xyz_gradient_accum, self.denom = self.xyz_gradient_accum[valid], self.denom[valid]

        def densify(self, grad_threshold):
            grads = self.xyz_gradient_accum / self.denom
            grads[grads.isnan()] = 0.0
            chosen = torch.where(torch.norm(grads, dim=-1) >= grad_threshold, True, False)
            parts = {"xyz": self._xyz, "f": self._features, "opacity": self._opacity, "scaling": self._scaling, "rotation": self._rotation}
            new = {k: v[chosen] + (0.05 if k == "xyz" else 0.0) for k, v in parts.items()}
            tensors = {}
            for group in self.optimizer.param_groups:
                assert len(group["params"]) == 1
                extension_tensor = new[group["name"]]
                stored_state = self.optimizer.state.get(group["params"][0], None)
                for k in ("exp_avg", "exp_avg_sq"):
                    stored_state[k] = torch.cat((stored_state[k], torch.zeros_like(extension_tensor)), dim=0)
                del self.optimizer.state[group["params"][0]]
                group["params"][0] = nn.Parameter(torch.cat((group["params"][0], extension_tensor), dim=0).requires_grad_(True))
                self.optimizer.state[group["params"][0]] = stored_state
                tensors[group["name"]] = group["params"][0]
            self.take(tensors)
            self.xyz_gradient_accum = self.denom = torch.zeros((self._xyz.shape[0], 1))
            return int(chosen.sum())

    def render(xyz, cov, colours, opacity, size, offsets):
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
        pixels = torch.stack((xs, ys), dim=-1).view(-1, 1, 2)
        means2D = xyz[:, :2] / (xyz[:, 2:3] + 3) * 2 + offsets
        order = xyz[:, 2].argsort()
        cov2 = cov[:, :2, :2] * 0.5 + 0.02 * torch.eye(2)
        d = pixels - means2D[order]
        conic = torch.linalg.inv(cov2)[order]
        power = -0.5 * torch.einsum("pni,nij,pnj->pn", d, conic, d)
        alpha = torch.clamp(opacity[order].T * torch.exp(power), max=0.99)
        through = torch.cumprod(torch.cat([torch.ones(len(alpha), 1), 1 - alpha[:, :-1] + 1e-10], -1), -1)
        return ((alpha * through) @ colours[order]).T.reshape(3, size, size)

    def gaussian(window_size, sigma):
        gauss = torch.Tensor([math.exp(-((x - window_size // 2) ** 2) / float(2 * sigma**2)) for x in range(window_size)])
        return gauss / gauss.sum()

    def ssim(img1, img2, window_size=5):
        _1D = gaussian(window_size, 1.5).unsqueeze(1)
        _2D = _1D.mm(_1D.t()).float().unsqueeze(0).unsqueeze(0)
        window = torch.autograd.Variable(_2D.expand(3, 1, window_size, window_size).contiguous()).type_as(img1)
        conv = lambda t: F.conv2d(t, window, padding=window_size // 2, groups=3)
        mu1, mu2 = conv(img1), conv(img2)
        s1, s2, s12 = conv(img1 * img1) - mu1.pow(2), conv(img2 * img2) - mu2.pow(2), conv(img1 * img2) - mu1 * mu2
        found = ((2 * mu1 * mu2 + 0.01**2) * (2 * s12 + 0.03**2)) / ((mu1.pow(2) + mu2.pow(2) + 0.01**2) * (s1 + s2 + 0.03**2))
        return found.mean()

    gaussians = GaussianModel(12)
    gaussians.training_setup()
    target, out = torch.sigmoid(2 * some(torch, 3, 8, 8)), []
    draw = torch.compile(render, backend="eager") if compiled else render
    for iteration in range(1, 9):
        offsets = torch.zeros_like(gaussians._xyz[:, :2], dtype=torch.float32, requires_grad=True) + 0
        offsets.retain_grad()
        image = draw(gaussians._xyz, gaussians.covariance(), gaussians._features, gaussians.opacity_activation(gaussians._opacity), 8, offsets)
        Ll1 = torch.abs(image - target).mean()
        loss = (1.0 - 0.2) * Ll1 + 0.2 * (1.0 - ssim(image[None], target[None]))
        loss.backward()
        with torch.no_grad():
            visible = gaussians.opacity_activation(gaussians._opacity).squeeze() > 0.02
            gaussians.xyz_gradient_accum[visible] += torch.norm(offsets.grad[visible], dim=-1, keepdim=True)
            gaussians.denom[visible] += 1
            if iteration == 3:
                out.append(float(gaussians.densify(float(gaussians.xyz_gradient_accum.median() / 2))))
            if iteration == 5:
                gaussians.prune_points((torch.sigmoid(gaussians._opacity) < torch.sigmoid(gaussians._opacity).min() + 1e-3).squeeze())
            if iteration == 6:
                gaussians.reset_opacity()
            gaussians.optimizer.step()
            gaussians.optimizer.zero_grad(set_to_none=True)
        out += [loss.item(), float(len(gaussians._xyz))]
    return [*out, gaussians._xyz.norm().item(), sum(s["exp_avg"].abs().sum().item() for s in gaussians.optimizer.state.values())]


PROGRAMS = [segmentation, explanations, splats]
