"""Programs in the ways of public repositories, as those of `strangers_public.py`: molecules, trajectories, runs that go on."""

import abc
import collections
import json
import os
import tempfile
from importlib import import_module
from types import SimpleNamespace

import numpy as np
from strangers import begin, classes, some


def molecules(torch, compiled=False):
    """A network of graphs in batches, by hand: messages by `index_add`, softmax over edges by `scatter_reduce`, norms and sums of graphs."""
    nn, F = torch.nn, torch.nn.functional
    Dataset, DataLoader = torch.utils.data.Dataset, torch.utils.data.DataLoader

    class Data:
        def __init__(self, x=None, edge_index=None, edge_attr=None, y=None, batch=None):
            self.x, self.edge_index, self.edge_attr, self.y, self.batch = x, edge_index, edge_attr, y, batch

        @property
        def num_nodes(self):
            return self.x.size(0)

        def to(self, device, non_blocking=False):
            for key, item in self.__dict__.items():
                if torch.is_tensor(item):
                    setattr(self, key, item.to(device, non_blocking=non_blocking))
            return self

    class Molecules(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            rng = np.random.RandomState(i)
            n = int(rng.randint(3, 7))
            src = torch.from_numpy(np.concatenate([np.arange(n - 1), rng.randint(0, n, 2)]))
            dst = torch.from_numpy(np.concatenate([np.arange(1, n), rng.randint(0, n, 2)]))
            edge_index = torch.stack([torch.cat([src, dst]), torch.cat([dst, src])], dim=0)
            attr = torch.from_numpy(rng.randint(0, 3, len(src))).repeat(2)
            y = torch.tensor([[float(n % 2), float("nan") if i == 3 else 1.0]])
            return Data(torch.from_numpy(rng.randint(0, 5, (n, 2))), edge_index, attr, y)

    def collate(data_list):
        cumsum = torch.cumsum(torch.tensor([0] + [d.num_nodes for d in data_list]), 0)
        return Data(
            x=torch.cat([d.x for d in data_list]), edge_attr=torch.cat([d.edge_attr for d in data_list]), y=torch.cat([d.y for d in data_list]),
            edge_index=torch.cat([d.edge_index + off for d, off in zip(data_list, cumsum)], dim=-1),
            batch=torch.repeat_interleave(torch.arange(len(data_list)), torch.diff(cumsum)),
        )  # fmt: skip

    def broadcast(src, other, dim):
        if dim < 0:
            dim = other.dim() + dim
        if src.dim() == 1:
            for _ in range(0, dim):
                src = src.unsqueeze(0)
        for _ in range(src.dim(), other.dim()):
            src = src.unsqueeze(-1)
        return src.expand(other.size())

    def scatter_sum(src, index, dim=-1, out=None, dim_size=None):
        index = broadcast(index, src, dim)
        if out is None:
            size = list(src.size())
            size[dim] = dim_size if dim_size is not None else 0 if index.numel() == 0 else int(index.max()) + 1
            out = torch.zeros(size, dtype=src.dtype, device=src.device)
            return out.scatter_add_(dim, index, src)
        return out.scatter_add_(dim, index, src)

    def scatter_mean(src, index, dim_size):
        out, count = scatter_sum(src, index, 0, None, dim_size), scatter_sum(torch.ones_like(src[:, 0]), index, 0, dim_size=dim_size)
        return out.div(count.clamp_(min=1).unsqueeze(-1))

    def softmax(src, index, num_nodes):
        index_ = index.view(-1, *[1] * (src.dim() - 1)).expand_as(src)
        out = src - src.new_zeros(num_nodes, *src.shape[1:]).scatter_reduce_(0, index_, src, "amax", include_self=False).detach()[index]
        out = out.exp()
        return out / (scatter_sum(out, index, dim=0, dim_size=num_nodes)[index] + 1e-16)

    class MessagePassing(nn.Module, abc.ABC):
        def __init__(self, aggr="add"):
            super().__init__()
            self.aggr = aggr

        def propagate(self, edge_index, size, **kwargs):
            j, i = edge_index
            out = self.message(**{k: v[j] if k == "x" else v for k, v in kwargs.items()})
            reduced = torch.zeros(size, out.size(-1), dtype=out.dtype)
            return reduced.index_add(0, i, out) if self.aggr == "add" else reduced.index_reduce(0, i, out, "mean", include_self=False)

        @abc.abstractmethod
        def message(self, x, edge): ...

    class GINConv(MessagePassing):
        def __init__(self, dim, aggr):
            super().__init__(aggr)
            self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim, bias=False), nn.BatchNorm1d(2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
            self.eps, self.bond = nn.Parameter(torch.Tensor([0])), nn.Embedding(3, dim)
            self.att = nn.Linear(dim, 2)

        def forward(self, x, edge_index, edge_attr):
            return self.mlp((1 + self.eps) * x + self.propagate(edge_index, x.size(0), x=x, edge=(self.bond(edge_attr), edge_index[1])))

        def message(self, x, edge):
            edge, i = edge
            h = F.relu(x + edge)
            alpha = softmax(F.leaky_relu(self.att(h), 0.2), i, int(i.max()) + 1)
            return (h.view(len(h), 2, -1) * alpha.unsqueeze(-1)).flatten(1)

    class GraphNorm(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
            self.mean_scale = nn.Parameter(torch.ones(dim))

        def forward(self, x, batch, n):
            out = x - scatter_mean(x, batch, n).index_select(0, batch) * self.mean_scale
            std = (scatter_mean(out.pow(2), batch, n) + 1e-5).sqrt().index_select(0, batch)
            return self.weight * out / std + self.bias

    class GNN(nn.Module):
        def __init__(self, dim=8, layers=2, tasks=2):
            super().__init__()
            self.atoms = nn.ModuleList()
            for _ in range(2):
                emb = torch.nn.Embedding(5, dim)
                torch.nn.init.xavier_uniform_(emb.weight.data)
                self.atoms.append(emb)
            self.virtual = nn.Embedding(1, dim)
            nn.init.constant_(self.virtual.weight.data, 0)
            self.convs = nn.ModuleList([GINConv(dim, "add" if i else "mean") for i in range(layers)])
            self.norms, self.head = nn.ModuleList([GraphNorm(dim) for _ in range(layers)]), nn.Linear(3 * dim, tasks)

        def forward(self, data):
            n = int(data.y.size(0))
            h = sum(emb(data.x[:, i]) for i, emb in enumerate(self.atoms))
            vn, h_list = self.virtual(torch.zeros(n, dtype=data.edge_index.dtype)), [h]
            for conv, norm in zip(self.convs, self.norms):
                h = h + vn[data.batch]
                h = F.relu(norm(conv(h, data.edge_index, data.edge_attr), data.batch, n)) + h_list[-1]
                vn = vn + scatter_sum(h, data.batch, dim=0, dim_size=n)
                h_list.append(h)
            jump = torch.stack(h_list, dim=0).amax(0)
            top = jump.new_full((n, jump.size(1)), float("-inf"))
            top = top.scatter_reduce(0, data.batch.unsqueeze(1).expand_as(jump), jump, reduce="amax")
            return self.head(torch.cat([scatter_sum(jump, data.batch, 0), scatter_mean(jump, data.batch, n), top], 1))

    model = begin(torch, GNN())
    with torch.no_grad():
        for norm in model.norms:
            norm.weight.fill_(1.0)
    loader = DataLoader(Molecules(), batch_size=4, shuffle=False, collate_fn=collate, num_workers=0)
    optimizer, criterion, out = torch.optim.Adam(model.parameters(), lr=0.01), nn.BCEWithLogitsLoss(), []
    run = torch.compile(model, backend="eager") if compiled else model
    for _ in range(3):
        model.train()
        for _step, batch in enumerate(loader):
            batch = batch.to("cpu")
            if batch.x.shape[0] == 1 or batch.batch[-1] == 0:
                continue
            pred = run(batch)
            optimizer.zero_grad()
            is_labeled = batch.y == batch.y
            loss = criterion(pred.to(torch.float32)[is_labeled], batch.y.to(torch.float32)[is_labeled])
            loss.backward()
            optimizer.step()
            out.append(loss.item())
    model.eval()
    y_true, y_pred = [], []
    for batch in loader:
        with torch.no_grad():
            y_true.append(batch.y.view(-1, 2).detach().cpu())
            y_pred.append(model(batch).detach().cpu())
    y_true, y_pred = torch.cat(y_true, dim=0).numpy(), torch.cat(y_pred, dim=0).numpy()
    return [*out, float(np.nanmean(y_true)), float(y_pred.std())]


def trajectories(torch, compiled=False):
    """A Hamiltonian network, a leapfrog, an adjoint written as a Function over flat parameters, a flow with a traced Jacobian, `torch.func`."""
    nn, func = torch.nn, torch.func

    class HNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1, bias=None))
            self.register_buffer("M", torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
            for l in self.net:
                if isinstance(l, nn.Linear):
                    nn.init.orthogonal_(l.weight)

        def time_derivative(self, x):
            H = self.net(x)
            dH = torch.autograd.grad(H.sum(), x, create_graph=True)[0]
            return dH @ self.M.t()

    model, out = begin(torch, HNN()), []
    optim = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=1e-4)
    x = some(torch, 16, 2).requires_grad_()
    dxdt = (x.detach() @ model.M.t()) * 1.5
    loss_fn = lambda y, y_hat: (y - y_hat).pow(2).mean()
    slopes = torch.compile(model.time_derivative, backend="eager") if compiled else model.time_derivative
    for _ in range(4):
        loss = loss_fn(dxdt, slopes(x))
        loss.backward()
        optim.step()
        optim.zero_grad()
        out.append(loss.item())

    q, p = torch.tensor([[0.5]]), torch.tensor([[0.0]])
    for _ in range(5):
        dt, field = 0.1, lambda q, p: model.time_derivative(torch.cat([q, p], -1).requires_grad_()).detach().chunk(2, -1)
        p_half = p + dt / 2 * field(q, p)[1]
        q = q + dt * field(q, p_half)[0]
        p = p_half + dt / 2 * field(q, p_half)[1]
    out += [q.item(), p.item()]

    def rk4_step(f, t, dt, y):
        k1 = f(t, y)
        k2 = f(t + dt / 2, tuple(y_ + dt * k_ / 2 for y_, k_ in zip(y, k1)))
        k3 = f(t + dt / 2, tuple(y_ + dt * k_ / 2 for y_, k_ in zip(y, k2)))
        k4 = f(t + dt, tuple(y_ + dt * k_ for y_, k_ in zip(y, k3)))
        return tuple(y_ + dt / 6 * (a + 2 * b + 2 * c + d) for y_, a, b, c, d in zip(y, k1, k2, k3, k4))

    def odeint(f, y0, t, n=4):
        dt = (t[1] - t[0]) / n
        for i in range(n):
            y0 = rk4_step(f, t[0] + i * dt, dt, y0)
        return y0

    class OdeintAdjoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx, func, y0, t, flat_params):
            ctx.func = func
            with torch.no_grad():
                (y,) = odeint(lambda t, y: (func(t, y[0]),), (y0,), t)
            ctx.save_for_backward(t, flat_params, y)
            return y

        @staticmethod
        def backward(ctx, grad_y):
            t, flat_params, y = ctx.saved_tensors
            func, params = ctx.func, tuple(ctx.func.parameters())

            def augmented_dynamics(t, y_aug):
                y, adj_y = y_aug[0], y_aug[1]
                with torch.set_grad_enabled(True):
                    y = y.detach().requires_grad_(True)
                    func_eval = func(t, y)
                    vjp_y, *vjp_params = torch.autograd.grad(func_eval, (y, *params), -adj_y, allow_unused=True, retain_graph=True)
                vjp_y = torch.zeros_like(y) if vjp_y is None else vjp_y
                vjp_params = [torch.zeros_like(p) if v is None else v for p, v in zip(params, vjp_params)]
                return func_eval.detach(), vjp_y, torch.cat([v.contiguous().view(-1) for v in vjp_params])

            with torch.no_grad():
                aug = odeint(augmented_dynamics, (y, grad_y, torch.zeros_like(flat_params)), t.flip(0))
            return None, aug[1], None, aug[2]

    class ODEFunc(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.nfe = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)), 0
            for m in self.net.modules():
                if isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, mean=0, std=0.1)
                    nn.init.constant_(m.bias, val=0)

        def forward(self, t, y):
            self.nfe += 1
            return self.net(y**3) * torch.cos(t)

    ode, t = begin(torch, ODEFunc(), 3), torch.tensor([0.0, 1.0])
    optimizer = torch.optim.RMSprop(ode.parameters(), lr=1e-2)
    y0, want = some(torch, 5, 2).clamp(-1.5, 1.5), some(torch, 5, 2, seed=9)
    for _ in range(3):
        optimizer.zero_grad()
        flat = torch.cat([p.contiguous().view(-1) for p in ode.parameters()])
        loss = torch.mean(torch.abs(OdeintAdjoint.apply(ode, y0, t, flat) - want))
        loss.backward()
        optimizer.step()
        out += [loss.item(), ode.net[0].weight.grad.norm().item()]
    out.append(float(ode.nfe))
    assert nn.utils.parameters_to_vector(ode.parameters()).shape == flat.shape

    params = {k: v.detach() for k, v in ode.named_parameters()}
    f = lambda params, y: func.functional_call(ode, params, (torch.tensor(0.3), y))
    divergence = func.vmap(lambda y: torch.einsum("ii", func.jacrev(lambda y: f(params, y))(y)))(y0)
    _, pushed = func.jvp(lambda y: f(params, y), (y0,), (torch.ones_like(y0),))
    value, pull = func.vjp(lambda p: f(p, y0).square().sum(), params)
    (grads,) = pull(torch.ones_like(value))
    each = func.vmap(func.grad(lambda p, y: f(p, y).square().sum()), in_dims=(None, 0))(params, y0)
    hess = func.vmap(func.hessian(lambda y: f(params, y).sum()))(y0)
    total = sum((each[k].sum(0) - grads[k]).abs().max().item() < 1e-5 for k in grads)
    return [*out, divergence.sum().item(), pushed.norm().item(), value.item(), float(total), hess.diagonal(dim1=1, dim2=2).sum().item()]


def resumed(torch, compiled=False):
    """A run of configurations: a registry, every schedule, loaders of all kinds, early stopping, checkpoints of everything, loaded in part."""
    nn, data = torch.nn, torch.utils.data
    schedules = import_module(f"{torch.__name__}.optim.lr_scheduler")
    swa = import_module(f"{torch.__name__}.optim.swa_utils")

    class Registry(dict):
        def register(self, name):
            return lambda f: self.setdefault(name, f)

    models = Registry()

    @models.register("mlp")
    class MLP(nn.Module):
        def __init__(self, widths=(6, 10, 3), act="ReLU"):
            super().__init__()
            layers = []
            for i, (a, b) in enumerate(zip(widths[:-1], widths[1:])):
                layers += [(f"fc{i}", nn.Linear(a, b)), (f"act{i}", getattr(nn, act)())]
            self.body = nn.Sequential(collections.OrderedDict(layers[:-1]))
            self.register_buffer("seen", torch.tensor(0, dtype=torch.long))

        def forward(self, x):
            if self.training:
                self.seen += x.shape[0]
            return self.body(x)

        def get_extra_state(self):
            return {"version": 2}

        def set_extra_state(self, state):
            self.version = state["version"]

    class EarlyStopping:
        def __init__(self, patience=2, delta=0.0, path=None):
            self.patience, self.counter, self.best_score, self.early_stop, self.delta, self.path = patience, 0, None, False, delta, path

        def __call__(self, val_loss, model):
            score = -val_loss
            if self.best_score is None or score >= self.best_score + self.delta:
                self.best_score, self.counter = score, 0
                torch.save(model.state_dict(), self.path)
            else:
                self.counter += 1
                self.early_stop = self.counter >= self.patience

    folder = tempfile.mkdtemp()
    config = SimpleNamespace(**json.loads('{"model": {"name": "mlp", "act": "GELU"}, "lr": 0.05, "epochs": 5}'))
    x, y = some(torch, 30, 6), classes(torch, 30, 3)
    full = data.TensorDataset(x, y)
    train_set, val_set, test_set = data.random_split(full, [0.6, 0.2, 0.2], generator=torch.Generator().manual_seed(42))
    out = [float(len(s)) for s in (train_set, val_set, test_set)]
    assert sorted([*train_set.indices, *val_set.indices, *test_set.indices]) == list(range(30))
    train_set, val_set = data.Subset(full, list(range(18))), data.Subset(full, range(18, 24))
    counts = torch.bincount(y[:18], minlength=3)
    sampler = data.WeightedRandomSampler((1.0 / counts.float())[y[:18]], num_samples=18, replacement=True)
    out += [float(len(list(sampler))), float(len(data.BatchSampler(sampler, 4, drop_last=True)))]
    loader = data.DataLoader(train_set, batch_sampler=data.BatchSampler(data.SequentialSampler(train_set), 6, False))
    joined = data.ConcatDataset([val_set, data.Subset(full, [24, 25])])
    val_loader = data.DataLoader(joined, batch_size=len(joined), pin_memory=False, persistent_workers=False)

    class Stream(data.IterableDataset):
        def __iter__(self):
            info = data.get_worker_info()
            first, step = (0, 1) if info is None else (info.id, info.num_workers)
            return iter({"x": x[i], "name": f"row {i}", "n": i} for i in range(first, 8, step))

    for batch in data.DataLoader(Stream(), batch_size=3):
        out += [batch["x"].sum().item(), float(batch["n"].sum()), float(len(batch["name"]))]

    def build(name, **kwargs):
        return begin(torch, models[name](**kwargs))

    def train(model, scheduler, optimizer, epochs, start=0, stopping=None):
        found, criterion = [], nn.CrossEntropyLoss(reduction="sum")
        run = torch.compile(model, backend="eager") if compiled else model
        for _epoch in range(start, epochs):
            model.train()
            for xb, yb in loader:
                optimizer.zero_grad()
                loss = criterion(run(xb), yb) / len(xb)
                loss.backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                val = [criterion(model(xb), yb).item() / len(yb) for xb, yb in val_loader]
            if isinstance(scheduler, schedules.ReduceLROnPlateau):
                scheduler.step(val[0])
            else:
                scheduler.step()
            found += [loss.item(), val[0], optimizer.param_groups[0]["lr"]]
            if stopping is not None:
                stopping(val[0], model)
                if stopping.early_stop:
                    break
        return found

    every = {
        "step": lambda o: schedules.StepLR(o, 2, 0.5), "multi": lambda o: schedules.MultiStepLR(o, milestones=[1, 3], gamma=0.1),
        "exp": lambda o: schedules.ExponentialLR(o, 0.9), "warm": lambda o: schedules.CosineAnnealingWarmRestarts(o, T_0=2, T_mult=2),
        "one": lambda o: schedules.OneCycleLR(o, max_lr=0.1, epochs=5, steps_per_epoch=1, pct_start=0.4),
        "cyclic": lambda o: schedules.CyclicLR(o, 0.01, 0.1, step_size_up=2),
        "plateau": lambda o: schedules.ReduceLROnPlateau(o, "min", factor=0.3, patience=0, threshold=1e-2),
        "chain": lambda o: schedules.ChainedScheduler([schedules.ConstantLR(o, factor=0.5, total_iters=2), schedules.ExponentialLR(o, 0.9)]),
        "mult": lambda o: schedules.MultiplicativeLR(o, lr_lambda=lambda epoch: 0.95),
        "swa": lambda o: swa.SWALR(o, swa_lr=0.01, anneal_epochs=3),
    }  # fmt: skip
    name = config.model.pop("name")
    for make in every.values():
        model = build(name, **config.model)
        optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9)
        out += train(model, make(optimizer), optimizer, 2)[-3:]
    model = build(name, **config.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, amsgrad=True)
    scheduler, stopping = every["plateau"](optimizer), EarlyStopping(path=os.path.join(folder, "best.pt"))
    whole = train(model, scheduler, optimizer, config.epochs, stopping=stopping)
    out += [*whole, stopping.best_score]

    model = build(name, **config.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, amsgrad=True)
    scheduler = every["plateau"](optimizer)
    first = train(model, scheduler, optimizer, 2)
    torch.save({
        "epoch": 2, "model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
        "rng": torch.get_rng_state(), "loss": first[-2],
    }, os.path.join(folder, "last.pt"))  # fmt: skip
    checkpoint = torch.load(os.path.join(folder, "last.pt"), weights_only=True)
    again = models[name](**config.model)
    print_keys = again.load_state_dict(checkpoint["model_state_dict"])
    assert str(print_keys) == "<All keys matched successfully>" and again.version == 2
    optimizer = torch.optim.AdamW(again.parameters(), lr=1.0, amsgrad=True)
    optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
    scheduler = every["plateau"](optimizer)
    scheduler.load_state_dict(checkpoint["scheduler"])
    torch.set_rng_state(checkpoint["rng"])
    rest = train(again, scheduler, optimizer, config.epochs, start=checkpoint["epoch"])
    n = min(len(first + rest), len(whole))
    out += [float((first + rest)[:n] == whole[:n]), float(again.seen)]

    wider = models[name]((6, 10, 5), **config.model)
    best = torch.load(os.path.join(folder, "best.pt"))
    own = wider.state_dict()
    kept = {k: v for k, v in best.items() if k in own and not k.endswith("_extra_state") and v.shape == own[k].shape}
    missing, unexpected = wider.load_state_dict(kept, strict=False)
    out += [float(len(kept)), float(len(missing)), float(len(unexpected))]
    try:
        wider.load_state_dict(best)
    except RuntimeError as e:
        out.append(float("body.fc1.weight" in str(e)))
    return out


PROGRAMS = [molecules, trajectories, resumed]
