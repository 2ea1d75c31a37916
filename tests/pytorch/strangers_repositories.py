"""Programs in the ways of public repositories, as those of `strangers_public.py`: GPT, Rainbow and Swin, each with its training script."""

import collections
import copy
import inspect
import io
import math
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np
from strangers import begin, classes, some


def nano_gpt(torch, compiled=False):
    """nanoGPT: groups by `configure_optimizers`, accumulated gradients, a schedule by hand, a checkpoint with `_orig_mod.`, surgery, texts."""
    nn, F = torch.nn, torch.nn.functional

    class LayerNorm(nn.Module):
        def __init__(self, ndim, bias):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(ndim))
            self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

        def forward(self, input):
            return F.layer_norm(input, self.weight.shape, self.weight, self.bias, 1e-5)

    class CausalSelfAttention(nn.Module):
        def __init__(self, config, flash):
            super().__init__()
            assert config.n_embd % config.n_head == 0
            self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
            self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
            self.attn_dropout, self.resid_dropout = nn.Dropout(config.dropout), nn.Dropout(config.dropout)
            self.n_head, self.n_embd, self.dropout = config.n_head, config.n_embd, config.dropout
            self.flash = flash and hasattr(torch.nn.functional, "scaled_dot_product_attention")
            if not self.flash:
                size = config.block_size
                self.register_buffer("bias", torch.tril(torch.ones(size, size)).view(1, 1, size, size))

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
            k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            if self.flash:
                y = torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, attn_mask=None, dropout_p=self.dropout if self.training else 0, is_causal=True
                )
            else:
                att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
                att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
                y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
            y = y.transpose(1, 2).contiguous().view(B, T, C)
            return self.resid_dropout(self.c_proj(y))

    class MLP(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
            self.gelu = nn.GELU()
            self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
            self.dropout = nn.Dropout(config.dropout)

        def forward(self, x):
            return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))

    class Block(nn.Module):
        def __init__(self, config, flash):
            super().__init__()
            self.ln_1, self.attn = LayerNorm(config.n_embd, bias=config.bias), CausalSelfAttention(config, flash)
            self.ln_2, self.mlp = LayerNorm(config.n_embd, bias=config.bias), MLP(config)

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    @dataclass
    class GPTConfig:
        block_size: int = 12
        vocab_size: int = 17
        n_layer: int = 2
        n_head: int = 2
        n_embd: int = 16
        dropout: float = 0.0
        bias: bool = True

    class GPT(nn.Module):
        def __init__(self, config):
            super().__init__()
            assert config.vocab_size is not None and config.block_size is not None
            self.config = config
            self.transformer = nn.ModuleDict(dict(
                wte=nn.Embedding(config.vocab_size, config.n_embd), wpe=nn.Embedding(config.block_size, config.n_embd),
                drop=nn.Dropout(config.dropout), h=nn.ModuleList([Block(config, i == 0) for i in range(config.n_layer)]),
                ln_f=LayerNorm(config.n_embd, bias=config.bias),
            ))  # fmt: skip
            self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
            self.transformer.wte.weight = self.lm_head.weight
            self.apply(self._init_weights)
            for pn, p in self.named_parameters():
                if pn.endswith("c_proj.weight"):
                    torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.n_layer))

        def get_num_params(self, non_embedding=True):
            n_params = sum(p.numel() for p in self.parameters())
            return n_params - self.transformer.wpe.weight.numel() if non_embedding else n_params

        def _init_weights(self, module):
            if isinstance(module, nn.Linear):
                torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
                if module.bias is not None:
                    torch.nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

        def forward(self, idx, targets=None):
            b, t = idx.size()
            assert t <= self.config.block_size, f"Cannot forward sequence of length {t}, block size is only {self.config.block_size}"
            pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
            x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
            for block in self.transformer.h:
                x = block(x)
            x = self.transformer.ln_f(x)
            if targets is not None:
                logits = self.lm_head(x)
                loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
            else:
                logits, loss = self.lm_head(x[:, [-1], :]), None
            return logits, loss

        def crop_block_size(self, block_size):
            assert block_size <= self.config.block_size
            self.config.block_size = block_size
            self.transformer.wpe.weight = nn.Parameter(self.transformer.wpe.weight[:block_size])
            for block in self.transformer.h:
                if hasattr(block.attn, "bias"):
                    block.attn.bias = block.attn.bias[:, :, :block_size, :block_size]

        def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
            param_dict = {pn: p for pn, p in self.named_parameters() if p.requires_grad}
            decay_params = [p for n, p in param_dict.items() if p.dim() >= 2]
            nodecay_params = [p for n, p in param_dict.items() if p.dim() < 2]
            groups = [{"params": decay_params, "weight_decay": weight_decay}, {"params": nodecay_params, "weight_decay": 0.0}]
            fused_available = "fused" in inspect.signature(torch.optim.AdamW).parameters
            extra_args = dict(fused=True) if fused_available and device_type == "cuda" else dict()
            return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, **extra_args)

        def estimate_mfu(self, fwdbwd_per_iter, dt):
            cfg = self.config
            L, H, Q, T = cfg.n_layer, cfg.n_head, cfg.n_embd // cfg.n_head, cfg.block_size
            return (6 * self.get_num_params() + 12 * L * H * Q * T) * T * fwdbwd_per_iter / dt / 312e12

        @torch.no_grad()
        def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
            for _ in range(max_new_tokens):
                idx_cond = idx if idx.size(1) <= self.config.block_size else idx[:, -self.config.block_size :]
                logits, _ = self(idx_cond)
                logits = logits[:, -1, :] / temperature
                if top_k is not None:
                    v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                    logits[logits < v[:, [-1]]] = -float("Inf")
                idx_next = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
                idx = torch.cat((idx, idx_next), dim=1)
            return idx

    device_type, ptdtype = "cpu", {"float32": torch.float32, "bfloat16": torch.bfloat16}["float32"]
    ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=ptdtype)
    torch.manual_seed(1337)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    data, rng = np.random.RandomState(0).randint(0, 17, 400).astype(np.uint16), np.random.RandomState(5)
    block_size, batch_size = 12, 3

    def get_batch(split):
        part = data[:300] if split == "train" else data[300:]
        ix = torch.from_numpy(rng.randint(0, len(part) - block_size, (batch_size,)))
        x = torch.stack([torch.from_numpy((part[i : i + block_size]).astype(np.int64)) for i in ix])
        y = torch.stack([torch.from_numpy((part[i + 1 : i + 1 + block_size]).astype(np.int64)) for i in ix])
        return x.to("cpu"), y.to("cpu")

    model = begin(torch, GPT(GPTConfig()))
    out = [float(model.get_num_params()), float(model.get_num_params(False))]
    model.to("cpu")
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    optimizer = model.configure_optimizers(1e-1, 6e-3, (0.9, 0.95), device_type)
    raw_model = model
    if compiled:
        model = torch.compile(model)

    @torch.no_grad()
    def estimate_loss(eval_iters=2):
        found = {}
        model.eval()
        for split in ["train", "val"]:
            losses = torch.zeros(eval_iters)
            for k in range(eval_iters):
                X, Y = get_batch(split)
                with ctx:
                    logits, loss = model(X, Y)
                losses[k] = loss.item()
            found[split] = losses.mean()
        model.train()
        return found

    def get_lr(it, warmup_iters=2, lr_decay_iters=6, learning_rate=6e-3, min_lr=6e-4):
        if it < warmup_iters:
            return learning_rate * (it + 1) / (warmup_iters + 1)
        if it > lr_decay_iters:
            return min_lr
        decay_ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
        return min_lr + 0.5 * (1.0 + math.cos(math.pi * decay_ratio)) * (learning_rate - min_lr)

    X, Y = get_batch("train")
    steps, running_mfu = 2, -1.0
    for iter_num in range(5):
        for param_group in optimizer.param_groups:
            param_group["lr"] = get_lr(iter_num)
        if iter_num % 4 == 0:
            losses = estimate_loss()
            out += [losses["train"].item(), float(f"{losses['val']:.4f}")]
            checkpoint = {
                "model": raw_model.state_dict() if not compiled else model.state_dict(), "optimizer": optimizer.state_dict(),
                "model_args": asdict(raw_model.config), "iter_num": iter_num, "best_val_loss": losses["val"],
            }  # fmt: skip
            file = io.BytesIO()
            torch.save(checkpoint, file)
        for _micro_step in range(steps):
            with ctx:
                logits, loss = model(X, Y)
                loss = loss / steps
            X, Y = get_batch("train")
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        out += [loss.item() * steps, norm.item()]
        running_mfu = raw_model.estimate_mfu(batch_size * steps, 1.0)

    file.seek(0)
    checkpoint = torch.load(file, map_location="cpu")
    resumed = GPT(GPTConfig(**checkpoint["model_args"]))
    state_dict, unwanted_prefix = checkpoint["model"], "_orig_mod."
    for k, _v in list(state_dict.items()):
        if k.startswith(unwanted_prefix):
            state_dict[k[len(unwanted_prefix) :]] = state_dict.pop(k)
    resumed.load_state_dict(state_dict)
    again = resumed.configure_optimizers(1e-1, 6e-3, (0.9, 0.95), device_type)
    again.load_state_dict(checkpoint["optimizer"])
    out += [float(checkpoint["iter_num"]), float(checkpoint["best_val_loss"]), float(len(again.state))]
    logits, loss = resumed(X, Y)
    loss.backward()
    again.step()
    resumed.crop_block_size(8)
    resumed.eval()
    text = resumed.generate(X[:1, :4], 7, temperature=0.8, top_k=1)
    return [*out, loss.item(), running_mfu * 1e12, *map(float, text[0].tolist()), float(resumed.transformer.wpe.weight.sum())]


def rainbow(torch, compiled=False):
    """Rainbow: noisy layers, duelling heads, categorical returns projected by `index_add_`, n steps, priorities in a tree, polyak targets."""
    nn, F = torch.nn, torch.nn.functional
    rng = np.random.RandomState(12)

    class NoisyLinear(nn.Module):
        def __init__(self, in_features, out_features, std_init=0.5):
            super().__init__()
            self.in_features, self.out_features, self.std_init = in_features, out_features, std_init
            self.weight_mu, self.weight_sigma = (nn.Parameter(torch.Tensor(out_features, in_features)) for _ in range(2))
            self.bias_mu, self.bias_sigma = nn.Parameter(torch.FloatTensor(out_features)), nn.Parameter(torch.FloatTensor(out_features))
            self.register_buffer("weight_epsilon", torch.Tensor(out_features, in_features))
            self.register_buffer("bias_epsilon", torch.Tensor(out_features))
            self.reset_parameters()
            self.reset_noise()

        def reset_parameters(self):
            mu_range = 1 / math.sqrt(self.in_features)
            self.weight_mu.data.copy_(torch.from_numpy(rng.uniform(-mu_range, mu_range, tuple(self.weight_mu.shape))))
            self.weight_sigma.data.fill_(self.std_init / math.sqrt(self.in_features))
            self.bias_mu.data.copy_(torch.from_numpy(rng.uniform(-mu_range, mu_range, self.out_features)))
            self.bias_sigma.data.fill_(self.std_init / math.sqrt(self.out_features))

        def reset_noise(self):
            epsilon_in, epsilon_out = self.scale_noise(self.in_features), self.scale_noise(self.out_features)
            self.weight_epsilon.copy_(epsilon_out.ger(epsilon_in))
            self.bias_epsilon.copy_(epsilon_out)

        @staticmethod
        def scale_noise(size):
            x = torch.from_numpy(rng.standard_normal(size)).float()
            return x.sign().mul_(x.abs().sqrt_())

        def forward(self, x):
            if self.training:
                w, b = self.weight_mu + self.weight_sigma * self.weight_epsilon, self.bias_mu + self.bias_sigma * self.bias_epsilon
            else:
                w, b = self.weight_mu, self.bias_mu
            return F.linear(x, w, b)

    class Network(nn.Module):
        def __init__(self, in_dim, out_dim, atom_size, support):
            super().__init__()
            self.support, self.out_dim, self.atom_size = support, out_dim, atom_size
            self.feature_layer = nn.Sequential(nn.Linear(in_dim, 12), nn.ReLU())
            self.advantage_hidden_layer, self.advantage_layer = NoisyLinear(12, 10), NoisyLinear(10, out_dim * atom_size)
            self.value_hidden_layer, self.value_layer = NoisyLinear(12, 10), NoisyLinear(10, atom_size)

        def forward(self, x):
            return torch.sum(self.dist(x) * self.support, dim=2)

        def dist(self, x):
            feature = self.feature_layer(x)
            adv_hid, val_hid = F.relu(self.advantage_hidden_layer(feature)), F.relu(self.value_hidden_layer(feature))
            advantage = self.advantage_layer(adv_hid).view(-1, self.out_dim, self.atom_size)
            value = self.value_layer(val_hid).view(-1, 1, self.atom_size)
            dist = F.softmax(value + advantage - advantage.mean(dim=1, keepdim=True), dim=-1)
            return dist.clamp(min=1e-3)

        def reset_noise(self):
            for m in self.children():
                if isinstance(m, NoisyLinear):
                    m.reset_noise()

    class Replay:
        def __init__(self, size, n_step, gamma):
            self.obs, self.next_obs = np.zeros([size, 4], dtype=np.float32), np.zeros([size, 4], dtype=np.float32)
            self.acts, self.rews, self.done = (np.zeros([size], dtype=np.float32) for _ in range(3))
            self.priorities, self.n, self.n_step, self.gamma = np.zeros(size), 0, collections.deque(maxlen=n_step), gamma

        def store(self, *transition):
            self.n_step.append(transition)
            if len(self.n_step) < self.n_step.maxlen:
                return
            rew, next_obs, done = self.n_step[-1][-3:]
            for r, n_o, d in reversed([t[-3:] for t in list(self.n_step)[:-1]]):
                rew = r + self.gamma * rew * (1 - d)
                next_obs, done = (n_o, d) if d else (next_obs, done)
            obs, act = self.n_step[0][:2]
            i = self.n % len(self.acts)
            self.obs[i], self.acts[i], self.rews[i], self.next_obs[i], self.done[i] = obs, act, rew, next_obs, done
            self.priorities[i] = max(self.priorities.max(), 1.0) ** 0.6
            self.n += 1

        def sample(self, batch, beta):
            p = self.priorities[: self.n] / self.priorities[: self.n].sum()
            idxs = rng.choice(self.n, batch, p=p, replace=False)
            weights = (p[idxs] * self.n) ** -beta
            return dict(obs=self.obs[idxs], next_obs=self.next_obs[idxs], acts=self.acts[idxs], rews=self.rews[idxs], done=self.done[idxs],
                        weights=weights / weights.max(), indices=idxs)  # fmt: skip

    v_min, v_max, atom_size, gamma, n_step, batch = -2.0, 2.0, 11, 0.9, 3, 8
    device = torch.device("cpu")
    support = torch.linspace(v_min, v_max, atom_size).to(device)
    dqn, dqn_target = (Network(4, 2, atom_size, support).to(device) for _ in range(2))
    begin(torch, dqn.feature_layer)
    dqn_target.load_state_dict(dqn.state_dict())
    dqn_target.eval()
    optimizer, memory, state, out = torch.optim.Adam(dqn.parameters(), 5e-3), Replay(64, n_step, gamma), rng.standard_normal(4), []
    for _ in range(40):
        action = dqn(torch.FloatTensor(state).to(device)).argmax().detach().cpu().numpy()
        next_state = 0.9 * state + rng.standard_normal(4) * 0.3 + (0.1 if action else -0.1)
        memory.store(state, action, float(next_state[0] > 0), next_state, float(rng.rand() < 0.1))
        state = next_state

    def compute_dqn_loss(samples, gamma):
        state, next_state = torch.FloatTensor(samples["obs"]), torch.FloatTensor(samples["next_obs"])
        action = torch.LongTensor(samples["acts"])
        reward, done = torch.FloatTensor(samples["rews"].reshape(-1, 1)), torch.FloatTensor(samples["done"].reshape(-1, 1))
        delta_z = float(v_max - v_min) / (atom_size - 1)
        with torch.no_grad():
            next_action = dqn(next_state).argmax(1)
            next_dist = dqn_target.dist(next_state)
            next_dist = next_dist[range(batch), next_action]
            t_z = reward + (1 - done) * gamma * support
            t_z = t_z.clamp(min=v_min, max=v_max)
            b = (t_z - v_min) / delta_z
            l, u = b.floor().long(), b.ceil().long()
            offset = torch.linspace(0, (batch - 1) * atom_size, batch).long().unsqueeze(1).expand(batch, atom_size).to(device)
            proj_dist = torch.zeros(next_dist.size(), device=device)
            proj_dist.view(-1).index_add_(0, (l + offset).view(-1), (next_dist * (u.float() - b)).view(-1))
            proj_dist.view(-1).index_add_(0, (u + offset).view(-1), (next_dist * (b - l.float())).view(-1))
        dist = dqn.dist(state)
        log_p = torch.log(dist[range(batch), action])
        return -(proj_dist * log_p).sum(1)

    loss_of = torch.compile(compute_dqn_loss, backend="eager") if compiled else compute_dqn_loss
    for step in range(4):
        samples = memory.sample(batch, beta=0.4 + 0.1 * step)
        weights, indices = torch.FloatTensor(samples["weights"].reshape(-1, 1)), samples["indices"]
        elementwise_loss = loss_of(samples, gamma**n_step)
        loss = torch.mean(elementwise_loss * weights.squeeze(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(dqn.parameters(), 10.0)
        optimizer.step()
        memory.priorities[indices] = (elementwise_loss.detach().cpu().numpy() + 1e-6) ** 0.6
        dqn.reset_noise()
        dqn_target.reset_noise()
        for target_param, param in zip(dqn_target.parameters(), dqn.parameters()):
            target_param.data.copy_(0.2 * param.data + (1.0 - 0.2) * target_param.data)
        out += [loss.item(), float(memory.priorities.sum())]
    return [*out, dqn_target(torch.FloatTensor(memory.obs[:5])).sum().item(), dqn.training + dqn_target.training]


def windows(torch, compiled=False):
    """Swin: windows shifted by `roll`, biases by relative places, masks in buffers, merged patches, mixup, layer-wise rates, EMA."""
    nn, F = torch.nn, torch.nn.functional

    def window_partition(x, window_size):
        B, H, W, C = x.shape
        x = x.view(B, H // window_size, window_size, W // window_size, window_size, C)
        return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window_size, window_size, C)

    def window_reverse(windows, window_size, H, W):
        B = int(windows.shape[0] / (H * W / window_size / window_size))
        x = windows.view(B, H // window_size, W // window_size, window_size, window_size, -1)
        return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(B, H, W, -1)

    class WindowAttention(nn.Module):
        def __init__(self, dim, window_size, num_heads):
            super().__init__()
            self.dim, self.window_size, self.num_heads, self.scale = dim, window_size, num_heads, (dim // num_heads) ** -0.5
            size = (2 * window_size[0] - 1) * (2 * window_size[1] - 1)
            self.relative_position_bias_table = nn.Parameter(torch.zeros(size, num_heads))
            coords = torch.stack(torch.meshgrid([torch.arange(window_size[0]), torch.arange(window_size[1])], indexing="ij"))
            coords_flatten = torch.flatten(coords, 1)
            relative_coords = coords_flatten[:, :, None] - coords_flatten[:, None, :]
            relative_coords = relative_coords.permute(1, 2, 0).contiguous()
            relative_coords[:, :, 0] += window_size[0] - 1
            relative_coords[:, :, 1] += window_size[1] - 1
            relative_coords[:, :, 0] *= 2 * window_size[1] - 1
            self.register_buffer("relative_position_index", relative_coords.sum(-1))
            self.qkv, self.proj, self.softmax = nn.Linear(dim, dim * 3), nn.Linear(dim, dim), nn.Softmax(dim=-1)
            nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

        def forward(self, x, mask=None):
            B_, N, C = x.shape
            qkv = self.qkv(x).reshape(B_, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
            q, k, v = qkv[0], qkv[1], qkv[2]
            attn = q * self.scale @ k.transpose(-2, -1)
            n = self.window_size[0] * self.window_size[1]
            bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(n, n, -1)
            attn = attn + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
            if mask is not None:
                nW = mask.shape[0]
                attn = attn.view(B_ // nW, nW, self.num_heads, N, N) + mask.unsqueeze(1).unsqueeze(0)
                attn = attn.view(-1, self.num_heads, N, N)
            return self.proj((self.softmax(attn) @ v).transpose(1, 2).reshape(B_, N, C))

        def extra_repr(self) -> str:
            return f"dim={self.dim}, window_size={self.window_size}, num_heads={self.num_heads}"

    class SwinTransformerBlock(nn.Module):
        def __init__(self, dim, resolution, num_heads, window_size=4, shift_size=0):
            super().__init__()
            self.resolution, self.window_size, self.shift_size = resolution, window_size, shift_size
            self.norm1, self.attn = nn.LayerNorm(dim), WindowAttention(dim, (window_size, window_size), num_heads)
            self.norm2 = nn.LayerNorm(dim)
            self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
            attn_mask = None
            if self.shift_size > 0:
                H, W = resolution
                img_mask, cnt = torch.zeros((1, H, W, 1)), 0
                slices = (slice(0, -window_size), slice(-window_size, -shift_size), slice(-shift_size, None))
                for h in slices:
                    for w in slices:
                        img_mask[:, h, w, :] = cnt
                        cnt += 1
                mask_windows = window_partition(img_mask, window_size).view(-1, window_size * window_size)
                attn_mask = mask_windows.unsqueeze(1) - mask_windows.unsqueeze(2)
                attn_mask = attn_mask.masked_fill(attn_mask != 0, -100.0).masked_fill(attn_mask == 0, 0.0)
            self.register_buffer("attn_mask", attn_mask)

        def forward(self, x):
            (H, W), (B, L, C) = self.resolution, x.shape
            assert L == H * W, "input feature has wrong size"
            shortcut, x = x, self.norm1(x).view(B, H, W, C)
            if self.shift_size > 0:
                x = torch.roll(x, shifts=(-self.shift_size, -self.shift_size), dims=(1, 2))
            x_windows = window_partition(x, self.window_size).view(-1, self.window_size * self.window_size, C)
            attn_windows = self.attn(x_windows, mask=self.attn_mask).view(-1, self.window_size, self.window_size, C)
            x = window_reverse(attn_windows, self.window_size, H, W)
            if self.shift_size > 0:
                x = torch.roll(x, shifts=(self.shift_size, self.shift_size), dims=(1, 2))
            x = shortcut + x.view(B, H * W, C)
            return x + self.mlp(self.norm2(x))

    class PatchMerging(nn.Module):
        def __init__(self, resolution, dim):
            super().__init__()
            self.resolution, self.reduction, self.norm = resolution, nn.Linear(4 * dim, 2 * dim, bias=False), nn.LayerNorm(4 * dim)

        def forward(self, x):
            (H, W), (B, _L, C) = self.resolution, x.shape
            x = x.view(B, H, W, C)
            x = torch.cat([x[:, 0::2, 0::2, :], x[:, 1::2, 0::2, :], x[:, 0::2, 1::2, :], x[:, 1::2, 1::2, :]], -1)
            return self.reduction(self.norm(x.view(B, -1, 4 * C)))

    class Swin(nn.Module):
        def __init__(self, num_classes=4, dim=6):
            super().__init__()
            self.patch_embed, self.patch_norm = nn.Conv2d(1, dim, 2, 2), nn.LayerNorm(dim)
            self.layers = nn.ModuleList([
                nn.Sequential(
                    *[SwinTransformerBlock(dim, (8, 8), 2, shift_size=0 if i % 2 == 0 else 2) for i in range(2)], PatchMerging((8, 8), dim)
                ),
                nn.Sequential(SwinTransformerBlock(2 * dim, (4, 4), 2)),
            ])  # fmt: skip
            self.norm, self.avgpool, self.head = nn.LayerNorm(2 * dim), nn.AdaptiveAvgPool1d(1), nn.Linear(2 * dim, num_classes)

        @lru_cache  # noqa: B019  (as people write it)
        def no_weight_decay_keywords(self):
            return {"relative_position_bias_table"}

        def forward(self, x):
            x = self.patch_norm(self.patch_embed(x).flatten(2).transpose(1, 2))
            for layer in self.layers:
                x = layer(x)
            return self.head(torch.flatten(self.avgpool(self.norm(x).transpose(1, 2)), 1))

    def get_layer_id(name):
        return 0 if name.startswith("patch") else int(name.split(".")[1]) + 1 if name.startswith("layers.") else 3

    def param_groups_lrd(model, weight_decay, layer_decay):
        groups, scales = {}, list(layer_decay ** (3 - i) for i in range(4))
        for n, p in model.named_parameters():
            if not p.requires_grad:
                continue
            no_decay = p.ndim == 1 or any(k in n for k in model.no_weight_decay_keywords())
            layer_id = get_layer_id(n)
            key = f"layer_{layer_id}_{'no_decay' if no_decay else 'decay'}"
            group = groups.setdefault(key, {"lr_scale": scales[layer_id], "weight_decay": 0.0 if no_decay else weight_decay, "params": []})
            group["params"].append(p)
        return list(groups.values())

    class SoftTargetCrossEntropy(nn.Module):
        def forward(self, x, target):
            return torch.sum(-target * F.log_softmax(x, dim=-1), dim=-1).mean()

    class ModelEma:
        def __init__(self, model, decay):
            self.ema, self.decay = copy.deepcopy(model).eval(), decay
            for p in self.ema.parameters():
                p.requires_grad_(False)

        def update(self, model):
            with torch.no_grad():
                msd = model.state_dict()
                for k, ema_v in self.ema.state_dict().items():
                    ema_v.copy_(ema_v * self.decay + (1.0 - self.decay) * msd[k].detach())

    def mixup(x, target, lam, num_classes=4, smoothing=0.1):
        off_value, on_value = smoothing / num_classes, 1.0 - smoothing + smoothing / num_classes
        one_hot = lambda t: torch.full((t.size(0), num_classes), off_value).scatter_(1, t.long().view(-1, 1), on_value)
        x_flipped = x.flip(0).mul_(1.0 - lam)
        x.mul_(lam).add_(x_flipped)
        return x, one_hot(target) * lam + one_hot(target.flip(0)) * (1.0 - lam)

    model = begin(torch, Swin(), scale=0.8)
    ema, criterion, out = ModelEma(model, 0.8), SoftTargetCrossEntropy(), []
    optimizer = torch.optim.AdamW(param_groups_lrd(model, 0.05, 0.75), lr=5e-3)
    assert "(attn): WindowAttention(" in repr(model.layers[0][0]) and "dim=6, window_size=(4, 4), num_heads=2" in repr(model)
    out += [float(len(optimizer.param_groups)), float(len(model.state_dict()))]
    run = torch.compile(model, backend="eager") if compiled else model
    for epoch in range(3):
        for g in optimizer.param_groups:
            g["lr"] = 5e-3 * 0.5 * (1.0 + math.cos(math.pi * epoch / 4)) * g["lr_scale"]
        samples, targets = mixup(some(torch, 4, 1, 16, 16, seed=epoch), classes(torch, 4, 4, seed=epoch), 0.7)
        loss = criterion(run(samples), targets)
        optimizer.zero_grad()
        loss.backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        torch._foreach_mul_(grads, min(1.0, 1.0 / (norm.item() + 1e-6)))
        optimizer.step()
        ema.update(model)
        out += [loss.item(), norm.item()]
    with torch.no_grad():
        logits = ema.ema(samples)
    return [*out, *logits[0].tolist(), ema.ema.layers[0][0].attn.relative_position_bias_table.abs().sum().item()]


PROGRAMS = [nano_gpt, rainbow, windows]
