"""Programs in the ways of public repositories, as those of `strangers.py`, eagerly and compiled: each is given the module `torch` and whether
what it trains is compiled, and returns numbers."""

import math
import os
import tempfile
from collections import OrderedDict

import numpy as np
from strangers import begin, classes, some


def kfac(torch, compiled=False):
    """A preconditioner by Kronecker factors, kept by hooks of layers, with eigenvalues anew every few steps; written as an Optimizer."""
    nn, F, optim = torch.nn, torch.nn.functional, torch.optim

    class KFACOptimizer(optim.Optimizer):
        def __init__(self, model, lr=0.01, momentum=0.9, stat_decay=0.95, damping=0.01, kl_clip=0.01, TCov=1, TInv=2):
            defaults = dict(lr=lr, momentum=momentum, damping=damping)
            super().__init__(model.parameters(), defaults)
            self.known_modules = {"Linear", "Conv2d"}
            self.modules, self.model, self.steps = [], model, 0
            self.m_aa, self.m_gg, self.Q_a, self.Q_g, self.d_a, self.d_g = {}, {}, {}, {}, {}, {}
            self.stat_decay, self.kl_clip, self.TCov, self.TInv = stat_decay, kl_clip, TCov, TInv
            for module in model.modules():
                if module.__class__.__name__ in self.known_modules:
                    self.modules.append(module)
                    module.register_forward_pre_hook(self._save_input)
                    module.register_full_backward_hook(self._save_grad_output)

        def _cov_a(self, a, layer):
            batch = a.size(0)
            if isinstance(layer, nn.Conv2d):
                a = F.unfold(a, layer.kernel_size, padding=layer.padding, stride=layer.stride).transpose(1, 2)
                spatial = a.size(1)
                a = a.contiguous().view(-1, a.size(-1))
                if layer.bias is not None:
                    a = torch.cat([a, a.new(a.size(0), 1).fill_(1)], 1)
                a = a / spatial
            elif layer.bias is not None:
                a = torch.cat([a, a.new_ones(a.size(0), 1)], 1)
            return a.t() @ (a / batch)

        def _cov_g(self, g, layer):
            batch = g.size(0)
            if isinstance(layer, nn.Conv2d):
                spatial = g.size(2) * g.size(3)
                g = g.transpose(1, 2).transpose(2, 3).contiguous().view(-1, g.size(1)) * batch * spatial
                return g.t() @ (g / g.size(0))
            g = g * batch
            return g.t() @ (g / batch)

        def _running(self, new, old):
            old *= self.stat_decay / (1 - self.stat_decay)
            old += new
            old *= 1 - self.stat_decay

        def _save_input(self, module, input):
            if torch.is_grad_enabled() and self.steps % self.TCov == 0:
                aa = self._cov_a(input[0].data, module)
                if self.steps == 0:
                    self.m_aa[module] = torch.diag(aa.new(aa.size(0)).fill_(1))
                self._running(aa, self.m_aa[module])

        def _save_grad_output(self, module, grad_input, grad_output):
            if self.steps % self.TCov == 0:
                gg = self._cov_g(grad_output[0].data, module)
                if self.steps == 0:
                    self.m_gg[module] = torch.diag(gg.new(gg.size(0)).fill_(1))
                self._running(gg, self.m_gg[module])

        @torch.no_grad()
        def step(self, closure=None):
            group = self.param_groups[0]
            lr, damping = group["lr"], group["damping"]
            updates = {}
            for m in self.modules:
                if self.steps % self.TInv == 0:
                    eps = 1e-10
                    self.d_a[m], self.Q_a[m] = torch.linalg.eigh(self.m_aa[m], UPLO="U")
                    self.d_g[m], self.Q_g[m] = torch.linalg.eigh(self.m_gg[m], UPLO="U")
                    self.d_a[m].mul_((self.d_a[m] > eps).float())
                    self.d_g[m].mul_((self.d_g[m] > eps).float())
                p_grad_mat = m.weight.grad.data.view(m.weight.size(0), -1)
                if m.bias is not None:
                    p_grad_mat = torch.cat([p_grad_mat, m.bias.grad.data.view(-1, 1)], 1)
                v1 = self.Q_g[m].t() @ p_grad_mat @ self.Q_a[m]
                v2 = v1 / (self.d_g[m].unsqueeze(1) * self.d_a[m].unsqueeze(0) + damping)
                v = self.Q_g[m] @ v2 @ self.Q_a[m].t()
                v = [v[:, :-1], v[:, -1:]] if m.bias is not None else [v]
                updates[m] = [v[0].view(m.weight.grad.data.size())] + [x.view(m.bias.grad.data.size()) for x in v[1:]]
            vg_sum = 0
            for m in self.modules:
                v = updates[m]
                vg_sum += (v[0] * m.weight.grad.data * lr**2).sum().item()
                if m.bias is not None:
                    vg_sum += (v[1] * m.bias.grad.data * lr**2).sum().item()
            nu = min(1.0, math.sqrt(self.kl_clip / abs(vg_sum)))
            for m in self.modules:
                m.weight.grad.data.copy_(updates[m][0])
                m.weight.grad.data.mul_(nu)
                if m.bias is not None:
                    m.bias.grad.data.copy_(updates[m][1])
                    m.bias.grad.data.mul_(nu)
            for p in group["params"]:
                if p.grad is None:
                    continue
                d_p = p.grad.data
                state = self.state[p]
                if "momentum_buffer" not in state:
                    buf = state["momentum_buffer"] = torch.zeros_like(p.data)
                    buf.mul_(group["momentum"]).add_(d_p)
                else:
                    buf = state["momentum_buffer"]
                    buf.mul_(group["momentum"]).add_(d_p, alpha=1)
                p.data.add_(buf, alpha=-lr)
            self.steps += 1
            return nu

    net = begin(
        torch,
        nn.Sequential(
            OrderedDict(
                [
                    ("conv", nn.Conv2d(2, 4, 3, padding=1)),
                    ("act", nn.ReLU()),
                    ("pool", nn.AdaptiveAvgPool2d(2)),
                    ("flat", nn.Flatten()),
                    ("fc", nn.Linear(16, 3, bias=False)),
                ]
            )
        ),
    )
    optimizer = KFACOptimizer(net, lr=0.05)
    x, y, out = some(torch, 12, 2, 6, 6), classes(torch, 12, 3), []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        nu = optimizer.step()
        out += [loss.item(), nu, float(optimizer.m_gg[net.fc].diagonal().sum()), torch.trace(optimizer.m_aa[net.conv]).item()]
    state = optimizer.state_dict()
    return out + [float(len(state["state"])), state["state"][0]["momentum_buffer"].norm().item()]


def speech(torch, compiled=False):
    """CTC: a convolution and LSTM over log-mels, masks of time and frequency, nn.CTCLoss, greedy decoding, errors by edit distance."""
    nn, F = torch.nn, torch.nn.functional

    class CNNLayerNorm(nn.Module):
        def __init__(self, n_feats):
            super().__init__()
            self.layer_norm = nn.LayerNorm(n_feats)

        def forward(self, x):
            x = x.transpose(2, 3).contiguous()
            x = self.layer_norm(x)
            return x.transpose(2, 3).contiguous()

    class ResidualCNN(nn.Module):
        def __init__(self, n, kernel, stride, dropout, n_feats):
            super().__init__()
            self.cnn1 = nn.Conv2d(n, n, kernel, stride, padding=kernel // 2)
            self.cnn2 = nn.Conv2d(n, n, kernel, stride, padding=kernel // 2)
            self.dropout1, self.dropout2 = nn.Dropout(dropout), nn.Dropout(dropout)
            self.layer_norm1, self.layer_norm2 = CNNLayerNorm(n_feats), CNNLayerNorm(n_feats)

        def forward(self, x):
            residual = x
            x = self.cnn1(self.dropout1(F.gelu(self.layer_norm1(x))))
            x = self.cnn2(self.dropout2(F.gelu(self.layer_norm2(x))))
            x += residual
            return x

    class SpeechRecognitionModel(nn.Module):
        def __init__(self, n_rnn, rnn_dim, n_class, n_feats, stride=2):
            super().__init__()
            n_feats = n_feats // 2
            self.cnn = nn.Conv2d(1, 4, 3, stride=stride, padding=3 // 2)
            self.rescnn_layers = nn.Sequential(*[ResidualCNN(4, 3, 1, 0.0, n_feats) for _ in range(2)])
            self.fully_connected = nn.Linear(n_feats * 4, rnn_dim)
            self.birnn = nn.LSTM(rnn_dim, rnn_dim, n_rnn, batch_first=True, bidirectional=True)
            self.classifier = nn.Sequential(nn.Linear(rnn_dim * 2, rnn_dim), nn.GELU(), nn.Linear(rnn_dim, n_class))

        def forward(self, x, lengths):
            x = self.rescnn_layers(self.cnn(x))
            sizes = x.size()
            x = x.view(sizes[0], sizes[1] * sizes[2], sizes[3]).transpose(1, 2)
            x = self.fully_connected(x)
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            x, _ = nn.utils.rnn.pad_packed_sequence(self.birnn(packed)[0], batch_first=True)
            return self.classifier(x)

    def levenshtein(ref, hyp):
        m, n = len(ref), len(hyp)
        distance = np.zeros((2, n + 1), dtype=np.int32)
        distance[0] = np.arange(n + 1)
        for i in range(1, m + 1):
            prev, cur = (i - 1) % 2, i % 2
            distance[cur][0] = i
            for j in range(1, n + 1):
                distance[cur][j] = min(
                    distance[prev][j - 1] + (ref[i - 1] != hyp[j - 1]), distance[cur][j - 1] + 1, distance[prev][j] + 1
                )
        return int(distance[m % 2][n])

    def collate(batch):
        waves, labels = [w.t() for w, _ in batch], [torch.Tensor(text) for _, text in batch]
        spectrograms = nn.utils.rnn.pad_sequence(waves, batch_first=True).unsqueeze(1).transpose(2, 3)
        return (
            spectrograms,
            nn.utils.rnn.pad_sequence(labels, batch_first=True),
            [w.shape[0] // 2 for w in waves],
            [len(t) for t in labels],
        )

    rng = np.random.RandomState(0)
    data = [(some(torch, 8, n, seed=n), list(rng.randint(1, 6, k))) for n, k in ((24, 3), (20, 2), (28, 4), (22, 3))]
    loader = torch.utils.data.DataLoader(dataset=data, batch_size=2, shuffle=False, collate_fn=lambda x: collate(x))
    model = begin(torch, SpeechRecognitionModel(2, 8, 6, 8))
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=5e-3, steps_per_epoch=int(len(loader)), epochs=3, anneal_strategy="linear"
    )
    out = []

    def forward(spectrograms, lengths):
        band = torch.arange(spectrograms.shape[2])[None, None, :, None]
        masked = spectrograms.masked_fill((band >= 2) & (band < 4), 0.0)
        return F.log_softmax(model(masked, lengths), dim=2).transpose(0, 1)

    for _ in range(3):
        model.train()
        for spectrograms, labels, input_lengths, label_lengths in loader:
            optimizer.zero_grad()
            lengths = torch.tensor(input_lengths)
            output = forward(spectrograms, lengths)
            loss = criterion(output, labels, input_lengths, label_lengths)
            loss.backward()
            optimizer.step()
            scheduler.step()
            out += [loss.item(), scheduler.get_last_lr()[0]]
    model.eval()
    errors = []
    with torch.no_grad():
        for spectrograms, labels, input_lengths, label_lengths in loader:
            output = forward(spectrograms, torch.tensor(input_lengths)).transpose(0, 1)
            for row, n, ref, k in zip(torch.argmax(output, dim=2), input_lengths, labels, label_lengths):
                best = torch.unique_consecutive(row[:n], dim=-1)
                errors.append(levenshtein(ref[:k].tolist(), [float(i) for i in best if i != 0]) / k)
    return out + errors


def torchrun(torch, compiled=False):
    """A script for torchrun, of one process: init_process_group from the environment, DDP, no_sync, reductions, a sampler, rank 0 saves."""

    nn, dist = torch.nn, torch.distributed
    DDP = torch.nn.parallel.DistributedDataParallel
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "29511")
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")

    def ddp_setup():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(
            backend=backend, init_method="env://", world_size=int(os.environ["WORLD_SIZE"]), rank=int(os.environ["RANK"])
        )

    class MyTrainDataset(torch.utils.data.Dataset):
        def __init__(self, size):
            self.size = size
            self.data = [(some(torch, 20, seed=i), some(torch, 1, seed=100 + i)) for i in range(size)]

        def __len__(self):
            return self.size

        def __getitem__(self, index):
            return self.data[index]

    class Trainer:
        def __init__(self, model, train_data, optimizer, save_every, snapshot_path):
            self.gpu_id = int(os.environ["LOCAL_RANK"])
            self.model, self.train_data, self.optimizer, self.save_every = model.to("cpu"), train_data, optimizer, save_every
            self.epochs_run, self.snapshot_path, self.losses = 0, snapshot_path, []
            if os.path.exists(snapshot_path):
                self._load_snapshot(snapshot_path)
            self.model = DDP(self.model, device_ids=None, find_unused_parameters=False, gradient_as_bucket_view=True)

        def _load_snapshot(self, snapshot_path):
            snapshot = torch.load(snapshot_path, map_location=torch.device("cpu"))
            self.model.load_state_dict(snapshot["MODEL_STATE"])
            self.epochs_run = snapshot["EPOCHS_RUN"]

        def _run_batch(self, source, targets, sync):
            ctx = self.model.no_sync() if not sync else torch.enable_grad()
            with ctx:
                loss = nn.functional.mse_loss(self.model(source), targets)
                (loss / 2).backward()
            if sync:
                self.optimizer.step()
                self.optimizer.zero_grad()
            total = loss.detach().clone()
            dist.all_reduce(total, op=dist.ReduceOp.SUM)
            total /= dist.get_world_size()
            self.losses.append(total.item())

        def _save_snapshot(self, epoch):
            torch.save({"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch + 1}, self.snapshot_path)

        def train(self, max_epochs):
            for epoch in range(self.epochs_run, max_epochs):
                self.train_data.sampler.set_epoch(epoch)
                for i, (source, targets) in enumerate(self.train_data):
                    self._run_batch(source, targets, i % 2 == 1)
                if self.gpu_id == 0 and epoch % self.save_every == 0:
                    self._save_snapshot(epoch)
                dist.barrier()

    ddp_setup()
    try:
        path = os.path.join(tempfile.mkdtemp(), "snapshot.pt")
        out = []
        for epochs in (2, 3):
            model = begin(torch, nn.Sequential(OrderedDict(fc=nn.Linear(20, 1), act=nn.Softplus())))
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
            dataset = MyTrainDataset(16)
            sampler = torch.utils.data.distributed.DistributedSampler(dataset, shuffle=False)
            loader = torch.utils.data.DataLoader(dataset, batch_size=4, pin_memory=False, shuffle=False, sampler=sampler)
            trainer = Trainer(model, loader, optimizer, 1, path)
            trainer.train(epochs)
            out += trainer.losses
        gathered = [torch.zeros(2) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, torch.tensor([1.0, 2.0]))
        objects = [None] * dist.get_world_size()
        dist.all_gather_object(objects, {"rank": dist.get_rank(), "n": 3})
        box = torch.tensor([5.0])
        dist.broadcast(box, src=0)
        assert dist.is_available() and dist.is_initialized()
        out += [
            gathered[0].sum().item(),
            objects[0]["n"],
            box.item(),
            float(dist.get_rank()),
            float(next(iter(trainer.model.state_dict())) == "module.fc.weight"),
        ]
    finally:
        dist.destroy_process_group()
    return out


def world_model(torch, compiled=False):
    """Dreamer: a recurrent state-space model of straight-through categoricals, two-hot values, divergences, imagined returns."""
    nn, F = torch.nn, torch.nn.functional
    td = torch.distributions

    symlog = lambda x: torch.sign(x) * torch.log(torch.abs(x) + 1.0)
    symexp = lambda x: torch.sign(x) * (torch.exp(torch.abs(x)) - 1.0)

    class OneHotDist(torch.distributions.one_hot_categorical.OneHotCategorical):
        def __init__(self, logits=None, probs=None, unimix_ratio=0.0):
            if logits is not None and unimix_ratio > 0.0:
                probs = F.softmax(logits, dim=-1)
                probs = probs * (1.0 - unimix_ratio) + unimix_ratio / probs.shape[-1]
                super().__init__(logits=torch.log(probs), probs=None)
            else:
                super().__init__(logits=logits, probs=probs)

        def mode(self):
            _mode = F.one_hot(torch.argmax(super().logits, axis=-1), super().logits.shape[-1])
            return _mode.detach() + super().logits - super().logits.detach()

        def straight(self, noise):
            picked = F.one_hot((super().logits + noise).argmax(-1), super().logits.shape[-1]).to(noise.dtype)
            probs = super().probs
            while len(probs.shape) < len(picked.shape):
                probs = probs[None]
            return picked + probs - probs.detach()

    class TwoHot:
        def __init__(self, logits, low=-4.0, high=4.0, device="cpu"):
            self.logits, self.probs = logits, torch.softmax(logits, -1)
            self.buckets = torch.linspace(low, high, steps=9).to(device)

        def mean(self):
            return symexp(torch.sum(self.probs * self.buckets, dim=-1, keepdim=True))

        def log_prob(self, x):
            x = symlog(x)
            below = torch.sum((self.buckets <= x[..., None]).to(torch.int32), dim=-1) - 1
            above = len(self.buckets) - torch.sum((self.buckets > x[..., None]).to(torch.int32), dim=-1)
            below = torch.clip(below, 0, len(self.buckets) - 1)
            above = torch.clip(above, 0, len(self.buckets) - 1)
            equal = below == above
            dist_to_below = torch.where(equal, 1, torch.abs(self.buckets[below] - x))
            dist_to_above = torch.where(equal, 1, torch.abs(self.buckets[above] - x))
            total = dist_to_below + dist_to_above
            weight_below, weight_above = dist_to_above / total, dist_to_below / total
            target = (
                F.one_hot(below, num_classes=len(self.buckets)) * weight_below[..., None]
                + F.one_hot(above, num_classes=len(self.buckets)) * weight_above[..., None]
            )
            log_pred = self.logits - torch.logsumexp(self.logits, -1, keepdim=True)
            return (target.squeeze(-2) * log_pred).sum(-1)

    class GRUCell(nn.Module):
        def __init__(self, inp_size, size, act=torch.tanh, update_bias=-1):
            super().__init__()
            self._act, self._size, self._update_bias = act, size, update_bias
            self.layers = nn.Sequential()
            self.layers.add_module("GRU_linear", nn.Linear(inp_size + size, 3 * size, bias=False))
            self.layers.add_module("GRU_norm", nn.LayerNorm(3 * size, eps=1e-03))

        def forward(self, inputs, state):
            state = state[0]
            parts = self.layers(torch.cat([inputs, state], -1))
            reset, cand, update = torch.split(parts, [self._size] * 3, -1)
            cand = self._act(torch.sigmoid(reset) * cand)
            update = torch.sigmoid(update + self._update_bias)
            output = update * cand + (1 - update) * state
            return output, [output]

    class RSSM(nn.Module):
        def __init__(self, stoch=3, deter=8, discrete=4, actions=2, embed=6):
            super().__init__()
            self._stoch, self._discrete, self._deter = stoch, discrete, deter
            self.inp = nn.Sequential(
                nn.Linear(stoch * discrete + actions, 8, bias=False), nn.LayerNorm(8, eps=1e-03), nn.SiLU()
            )
            self._cell = GRUCell(8, deter)
            self.prior, self.post = nn.Linear(deter, stoch * discrete), nn.Linear(deter + embed, stoch * discrete)
            self.W = nn.Parameter(torch.zeros((1, deter)), requires_grad=True)
            self.reward = nn.Linear(deter + stoch * discrete, 9)
            self.decoder = nn.Linear(deter + stoch * discrete, embed)

        def initial(self, batch_size):
            deter = torch.tanh(self.W).repeat(batch_size, 1)
            return {
                "logit": torch.zeros([batch_size, self._stoch, self._discrete]),
                "stoch": torch.zeros([batch_size, self._stoch, self._discrete]),
                "deter": deter,
            }

        def dist(self, state):
            return td.Independent(OneHotDist(state["logit"], unimix_ratio=0.01), 1)

        def img_step(self, prev, action, noise):
            x = self.inp(torch.cat([prev["stoch"].reshape(*prev["stoch"].shape[:-2], -1), action], -1))
            x, deter = self._cell(x, [prev["deter"]])
            logit = self.prior(x).reshape(-1, self._stoch, self._discrete)
            stoch = OneHotDist(logit, unimix_ratio=0.01).straight(noise)
            return {"stoch": stoch, "deter": deter[0], "logit": logit}

        def obs_step(self, prev, action, embed, is_first, noise):
            if torch.sum(is_first) == len(is_first):
                prev = self.initial(len(is_first))
                action = torch.zeros((len(is_first), 2))
            elif torch.sum(is_first) > 0:
                first = is_first[:, None]
                action = action * (1.0 - first)
                init = self.initial(len(is_first))
                for key, val in prev.items():
                    r = torch.reshape(first, first.shape + (1,) * (len(val.shape) - len(first.shape)))
                    prev[key] = val * (1.0 - r) + init[key] * r
            prior = self.img_step(prev, action, noise[0])
            logit = self.post(torch.cat([prior["deter"], embed], -1)).reshape(-1, self._stoch, self._discrete)
            return {
                "stoch": OneHotDist(logit, unimix_ratio=0.01).straight(noise[1]),
                "deter": prior["deter"],
                "logit": logit,
            }, prior

        def get_feat(self, state):
            stoch = state["stoch"]
            return torch.cat([stoch.reshape(list(stoch.shape[:-2]) + [-1]), state["deter"]], -1)

        def kl_loss(self, post, prior, free, dyn_scale, rep_scale):
            kld = td.kl.kl_divergence
            sg = lambda x: {k: v.detach() for k, v in x.items()}
            rep = torch.clip(kld(self.dist(post), self.dist(sg(prior))), min=free)
            dyn = torch.clip(kld(self.dist(sg(post)), self.dist(prior)), min=free)
            return dyn_scale * dyn + rep_scale * rep, kld(self.dist(post), self.dist(prior)).mean()

    rng = np.random.RandomState(1)
    gumbel = lambda *s: torch.from_numpy(rng.gumbel(size=s).astype(np.float32))
    net = begin(torch, RSSM())
    optimizer, out = torch.optim.Adam(net.parameters(), lr=4e-3, eps=1e-8), []
    embed, actions, rewards = some(torch, 5, 2, 6), some(torch, 5, 2, 2, seed=3), some(torch, 5, 2, 1, seed=4) * 3
    firsts = torch.tensor([[1.0, 1], [0, 0], [0, 1], [0, 0], [0, 0]])
    for _ in range(3):
        state, posts, priors = None, [], []
        for t in range(5):
            state, prior = net.obs_step(state, actions[t], embed[t], firsts[t], gumbel(2, 2, 3, 4))
            posts.append(state)
            priors.append(prior)
        post, prior = ({k: torch.stack([s[k] for s in states]) for k in states[0]} for states in (posts, priors))
        kl, value = net.kl_loss(post, prior, 0.1, 0.5, 0.1)
        feat = net.get_feat(post)
        nll = -TwoHot(net.reward(feat)).log_prob(rewards).mean()
        recon = ((net.decoder(feat) - symlog(embed)) ** 2).sum(-1).mean()
        loss = kl.mean() + nll + recon
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1000.0)
        optimizer.step()
        out += [loss.item(), value.item(), nll.item()]
    with torch.no_grad():
        state, feats = {k: v[-1] for k, v in post.items()}, []
        for t in range(4):
            state = net.img_step(state, actions[t], gumbel(2, 3, 4))
            feats.append(net.get_feat(state))
        reward = TwoHot(net.reward(torch.stack(feats))).mean()
        returns, last = [], reward[-1]
        for r in reversed(list(torch.unbind(reward[:-1], 0))):
            last = r + 0.9 * last
            returns.append(last)
        returns = torch.flip(torch.stack(returns), dims=(0,))
        low, high = torch.quantile(returns.flatten(), torch.tensor([0.05, 0.95]))
    return [
        *out,
        returns.mean().item(),
        low.item(),
        high.item(),
        OneHotDist(net.dist(state).base_dist.logits).mode().sum().item(),
    ]


PROGRAMS = [kfac, speech, torchrun, world_model]
