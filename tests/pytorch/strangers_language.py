"""Programs in the ways of public repositories, as those of `strangers_public.py`: recurrent and attentive models of language."""

import math
import random as pyrandom
from dataclasses import dataclass
from typing import Optional

import numpy as np
from strangers import begin


def llama(torch, compiled=False):
    """Llama as Meta writes it: rotary by complex numbers, repeated keys, a cache in buffers, nucleus sampling, checkpoints, frozen LoRA."""
    nn, F = torch.nn, torch.nn.functional
    checkpoint = torch.utils.checkpoint.checkpoint

    @dataclass
    class ModelArgs:
        dim: int = 16
        n_layers: int = 2
        n_heads: int = 4
        n_kv_heads: Optional[int] = 2  # noqa: UP045  (as people write it)
        vocab_size: int = 19
        multiple_of: int = 8
        norm_eps: float = 1e-5
        max_batch_size: int = 2
        max_seq_len: int = 12

    class RMSNorm(torch.nn.Module):
        def __init__(self, dim, eps=1e-6):
            super().__init__()
            self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

        def _norm(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

        def forward(self, x):
            return self._norm(x.float()).type_as(x) * self.weight

    def precompute_freqs_cis(dim, end, theta=10000.0):
        freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
        t = torch.arange(end, device=freqs.device, dtype=torch.float32)
        return torch.polar(torch.ones_like(torch.outer(t, freqs)), torch.outer(t, freqs))

    def reshape_for_broadcast(freqs_cis, x):
        ndim = x.ndim
        assert 0 <= 1 < ndim and freqs_cis.shape == (x.shape[1], x.shape[-1])
        return freqs_cis.view(*[d if i == 1 or i == ndim - 1 else 1 for i, d in enumerate(x.shape)])

    def apply_rotary_emb(xq, xk, freqs_cis):
        xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
        xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
        freqs_cis = reshape_for_broadcast(freqs_cis, xq_)
        xq_out = torch.view_as_real(xq_ * freqs_cis).flatten(3)
        return xq_out.type_as(xq), torch.view_as_real(xk_ * freqs_cis).flatten(3).type_as(xk)

    def repeat_kv(x, n_rep):
        bs, slen, n_kv_heads, head_dim = x.shape
        if n_rep == 1:
            return x
        return x[:, :, :, None, :].expand(bs, slen, n_kv_heads, n_rep, head_dim).reshape(bs, slen, n_kv_heads * n_rep, head_dim)

    class LoRALinear(nn.Linear):
        def __init__(self, cin, cout, r=2, alpha=4, **kwargs):
            super().__init__(cin, cout, **kwargs)
            self.lora_A = nn.Parameter(self.weight.new_zeros((r, cin)))
            self.lora_B = nn.Parameter(self.weight.new_zeros((cout, r)))
            self.scaling = alpha / r

        def forward(self, x):
            return F.linear(x, self.weight, self.bias) + (x @ self.lora_A.T @ self.lora_B.transpose(0, 1)) * self.scaling

    class Attention(nn.Module):
        def __init__(self, args):
            super().__init__()
            self.n_kv_heads = args.n_heads if args.n_kv_heads is None else args.n_kv_heads
            self.n_heads, self.n_rep, self.head_dim = args.n_heads, args.n_heads // self.n_kv_heads, args.dim // args.n_heads
            self.wq, self.wk = LoRALinear(args.dim, args.dim, bias=False), nn.Linear(args.dim, self.n_kv_heads * self.head_dim, bias=False)
            self.wv, self.wo = LoRALinear(args.dim, self.n_kv_heads * self.head_dim, bias=False), nn.Linear(args.dim, args.dim, bias=False)
            shape = (args.max_batch_size, args.max_seq_len, self.n_kv_heads, self.head_dim)
            self.register_buffer("cache_k", torch.zeros(shape), persistent=False)
            self.register_buffer("cache_v", torch.zeros(shape), persistent=False)

        def forward(self, x, start_pos, freqs_cis, mask):
            bsz, seqlen, _ = x.shape
            xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
            xq = xq.view(bsz, seqlen, self.n_heads, self.head_dim)
            xk, xv = (t.view(bsz, seqlen, self.n_kv_heads, self.head_dim) for t in (xk, xv))
            xq, xk = apply_rotary_emb(xq, xk, freqs_cis=freqs_cis)
            keys, values = xk, xv
            if not self.training:
                self.cache_k[:bsz, start_pos : start_pos + seqlen] = xk
                self.cache_v[:bsz, start_pos : start_pos + seqlen] = xv
                keys, values = self.cache_k[:bsz, : start_pos + seqlen], self.cache_v[:bsz, : start_pos + seqlen]
            keys, values = repeat_kv(keys, self.n_rep), repeat_kv(values, self.n_rep)
            xq, keys, values = (t.transpose(1, 2) for t in (xq, keys, values))
            scores = torch.matmul(xq, keys.transpose(2, 3)) / math.sqrt(self.head_dim)
            if mask is not None:
                scores = scores + mask
            scores = F.softmax(scores.float(), dim=-1).type_as(xq)
            output = torch.matmul(scores, values)
            return self.wo(output.transpose(1, 2).contiguous().view(bsz, seqlen, -1))

    class FeedForward(nn.Module):
        def __init__(self, dim, hidden_dim, multiple_of):
            super().__init__()
            hidden_dim = multiple_of * ((int(2 * hidden_dim / 3) + multiple_of - 1) // multiple_of)
            self.w1, self.w2, self.w3 = (nn.Linear(a, b, bias=False) for a, b in ((dim, hidden_dim), (hidden_dim, dim), (dim, hidden_dim)))

        def forward(self, x):
            return self.w2(F.silu(self.w1(x)) * self.w3(x))

    class TransformerBlock(nn.Module):
        def __init__(self, layer_id, args):
            super().__init__()
            self.attention, self.feed_forward = Attention(args), FeedForward(args.dim, 4 * args.dim, args.multiple_of)
            self.layer_id = layer_id
            self.attention_norm, self.ffn_norm = RMSNorm(args.dim, eps=args.norm_eps), RMSNorm(args.dim, eps=args.norm_eps)

        def forward(self, x, start_pos, freqs_cis, mask):
            h = x + self.attention(self.attention_norm(x), start_pos, freqs_cis, mask)
            return h + self.feed_forward(self.ffn_norm(h))

    class Transformer(nn.Module):
        def __init__(self, params):
            super().__init__()
            self.params = params
            self.tok_embeddings = nn.Embedding(params.vocab_size, params.dim)
            self.layers = torch.nn.ModuleList()
            for layer_id in range(params.n_layers):
                self.layers.append(TransformerBlock(layer_id, params))
            self.norm, self.output = RMSNorm(params.dim, eps=params.norm_eps), nn.Linear(params.dim, params.vocab_size, bias=False)
            self.freqs_cis = precompute_freqs_cis(params.dim // params.n_heads, params.max_seq_len * 2)

        def forward(self, tokens, start_pos=0):
            _bsz, seqlen = tokens.shape
            h = self.tok_embeddings(tokens)
            self.freqs_cis = self.freqs_cis.to(h.device)
            freqs_cis, mask = self.freqs_cis[start_pos : start_pos + seqlen], None
            if seqlen > 1:
                mask = torch.full((seqlen, seqlen), float("-inf"), device=tokens.device)
                mask = torch.triu(mask, diagonal=1)
                mask = torch.hstack([torch.zeros((seqlen, start_pos), device=tokens.device), mask]).type_as(h)
            for layer in self.layers:
                given = h, start_pos, freqs_cis, mask
                h = checkpoint(layer, *given, use_reentrant=False) if self.training and not compiled else layer(*given)
            return self.output(self.norm(h)).float()

    def sample_top_p(probs, p, u):
        probs_sort, probs_idx = torch.sort(probs, dim=-1, descending=True)
        probs_sum = torch.cumsum(probs_sort, dim=-1)
        mask = probs_sum - probs_sort > p
        probs_sort[mask] = 0.0
        probs_sort.div_(probs_sort.sum(dim=-1, keepdim=True))
        next_token = torch.searchsorted(probs_sort.cumsum(-1), u).clamp(max=probs.size(-1) - 1)
        return torch.gather(probs_idx, -1, next_token)

    args = ModelArgs()
    model = begin(torch, Transformer(args))
    for n, p in model.named_parameters():
        p.requires_grad_("lora_" in n or n.endswith("norm.weight"))
    trainable = [p for p in model.parameters() if p.requires_grad]
    out = [float(sum(p.numel() for p in trainable)), float(len(model.state_dict()))]
    optimizer = torch.optim.AdamW(trainable, lr=2e-2, foreach=False)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 2, 1.0))
    run = torch.compile(model, backend="eager") if compiled else model
    rng = np.random.RandomState(8)
    for _ in range(3):
        tokens = torch.from_numpy(rng.randint(0, args.vocab_size, (2, 9)))
        labels = tokens[:, 1:].clone()
        labels[:, :2] = -100
        logits = run(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=-100)
        z_loss = 1e-3 * logits.logsumexp(-1).square().mean()
        (loss + z_loss).backward()
        torch.nn.utils.clip_grad_value_(trainable, 0.5)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        out += [loss.item(), z_loss.item()]

    model.eval()
    with torch.inference_mode():
        prompt, total_len, prev_pos = torch.tensor([[3, 1, 4], [1, 5, 9]]), 9, 0
        tokens = torch.full((2, total_len), -1, dtype=torch.long)
        tokens[:, :3] = prompt
        eos_reached, input_text_mask = torch.tensor([False] * 2), tokens != -1
        for cur_pos in range(3, total_len):
            logits = model.forward(tokens[:, prev_pos:cur_pos], prev_pos)
            probs = torch.softmax(logits[:, -1] / 0.6, dim=-1)
            u = torch.from_numpy(rng.rand(2, 1).astype(np.float32))
            next_token = sample_top_p(probs, 0.9, u).reshape(-1)
            next_token = torch.where(input_text_mask[:, cur_pos], tokens[:, cur_pos], next_token)
            tokens[:, cur_pos] = next_token
            eos_reached |= (~input_text_mask[:, cur_pos]) & (next_token == 0)
            prev_pos = cur_pos
            if all(eos_reached):
                break
    sd = {k: v for k, v in model.state_dict().items() if "lora_" in k}
    merged = sum((sd[k.replace("lora_A", "lora_B")] @ v).abs().sum().item() for k, v in sd.items() if k.endswith("lora_A"))
    return [*out, merged, *map(float, tokens.flatten().tolist()), float(model.layers[0].attention.cache_k.abs().sum())]


def awd_lstm(torch, compiled=False):
    """AWD-LSTM: weights dropped by name, tied tables, locked dropout, AR and TAR losses, states detached, averaged SGD put in its place."""
    nn, F = torch.nn, torch.nn.functional

    class WeightDrop(nn.Module):
        """Drops recurrent weights: the raw ones are parameters, those that the layer reads are set before each call."""

        def __init__(self, module, weights, dropout=0.0):
            super().__init__()
            self.module, self.weights, self.dropout = module, weights, dropout
            for name_w in self.weights:
                w = getattr(self.module, name_w)
                self.register_parameter(name_w + "_raw", nn.Parameter(w.data.clone()))
            self._setweights()

        def _setweights(self):
            for name_w in self.weights:
                raw_w = getattr(self, name_w + "_raw")
                w = torch.nn.functional.dropout(raw_w, p=self.dropout, training=self.training)
                getattr(self.module, name_w).data.copy_(w.data)

        def forward(self, *args):
            self._setweights()
            return self.module.forward(*args)

    class LockedDropout(nn.Module):
        def forward(self, x, dropout=0.5):
            if not self.training or not dropout:
                return x
            m = x.data.new(1, x.size(1), x.size(2)).bernoulli_(1 - dropout)
            mask = m.div_(1 - dropout)
            return mask.expand_as(x) * x

    def embedded_dropout(embed, words, dropout=0.1, keep=None):
        mask = keep.expand_as(embed.weight) / (1 - dropout) if dropout else 1.0
        masked_embed_weight = mask * embed.weight
        padding_idx = embed.padding_idx
        if padding_idx is None:
            padding_idx = -1
        return F.embedding(words, masked_embed_weight, None if padding_idx < 0 else padding_idx, embed.max_norm, embed.norm_type,
                           embed.scale_grad_by_freq, embed.sparse)  # fmt: skip

    class RNNModel(nn.Module):
        def __init__(self, rnn_type, ntoken, ninp, nhid, nlayers, dropout=0.0, tie_weights=False):
            super().__init__()
            self.lockdrop, self.drop = LockedDropout(), nn.Dropout(dropout)
            self.encoder = nn.Embedding(ntoken, ninp)
            assert rnn_type in ["LSTM", "GRU"], "RNN type is not supported"
            sizes = [ninp if i == 0 else nhid for i in range(nlayers)], [nhid if i != nlayers - 1 else ninp for i in range(nlayers)]
            self.rnns = [getattr(torch.nn, rnn_type)(a, b, 1, dropout=0) for a, b in zip(*sizes)]
            self.dropped = WeightDrop(self.rnns[0], ["weight_hh_l0"], dropout=0.0)
            self.rnns = torch.nn.ModuleList(self.rnns)
            self.decoder = nn.Linear(nhid, ntoken)
            if tie_weights:
                self.decoder.weight = self.encoder.weight
            self.init_weights()
            self.rnn_type, self.ninp, self.nhid, self.nlayers, self.tie_weights = rnn_type, ninp, nhid, nlayers, tie_weights

        def init_weights(self):
            initrange = 0.1
            self.encoder.weight.data.uniform_(-initrange, initrange)
            self.decoder.bias.data.fill_(0)
            self.decoder.weight.data.uniform_(-initrange, initrange)

        def forward(self, input, hidden, keep, return_h=False):
            emb = embedded_dropout(self.encoder, input, dropout=0.1 if self.training else 0, keep=keep)
            raw_output, new_hidden, raw_outputs, outputs = self.lockdrop(emb, 0.0), [], [], []
            for l, rnn in enumerate(self.rnns):
                raw_output, new_h = rnn(raw_output, hidden[l])
                new_hidden.append(new_h)
                raw_outputs.append(raw_output)
                if l != self.nlayers - 1:
                    raw_output = self.lockdrop(raw_output, 0.0)
                    outputs.append(raw_output)
            output = self.lockdrop(raw_output, 0.0)
            outputs.append(output)
            result = output.view(output.size(0) * output.size(1), output.size(2))
            return (result, new_hidden, raw_outputs, outputs) if return_h else (result, new_hidden)

        def init_hidden(self, bsz):
            weight = next(self.parameters()).data
            size = lambda l: self.nhid if l != self.nlayers - 1 else (self.ninp if self.tie_weights else self.nhid)
            return [(weight.new(1, bsz, size(l)).zero_(), weight.new(1, bsz, size(l)).zero_()) for l in range(self.nlayers)]

    def repackage_hidden(h):
        return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)

    def batchify(data, bsz):
        nbatch = data.size(0) // bsz
        return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()

    def get_batch(source, i, bptt):
        seq_len = min(bptt, len(source) - 1 - i)
        return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)

    data = batchify(torch.LongTensor(np.random.RandomState(4).randint(0, 13, 4 * 26 + 3).tolist()), 4)
    model = begin(torch, RNNModel("LSTM", 13, 8, 8, 2, tie_weights=True))
    criterion = nn.CrossEntropyLoss()
    out = [float(sum(x.size()[0] * x.size()[1] if len(x.size()) > 1 else x.size()[0] for x in model.parameters() if x.size()))]
    params = [p for n, p in model.named_parameters() if "_raw" not in n]
    optimizer = torch.optim.SGD(params, lr=0.5, weight_decay=1.2e-6)
    run = torch.compile(model, backend="eager") if compiled else model
    keeps = np.random.RandomState(6)
    for epoch in range(3):
        model.train()
        hidden, i, total_loss = model.init_hidden(4), 0, 0.0
        while i < data.size(0) - 1 - 1:
            inputs, targets = get_batch(data, i, 6)
            hidden = [repackage_hidden(h) for h in hidden]
            optimizer.zero_grad()
            keep = torch.from_numpy((keeps.rand(13, 1) > 0.1).astype(np.float32))
            output, hidden, rnn_hs, dropped_rnn_hs = run(inputs, hidden, keep, return_h=True)
            raw_loss = criterion(model.decoder(output), targets)
            loss = raw_loss + sum(2 * h.pow(2).mean() for h in dropped_rnn_hs[-1:])
            loss = loss + sum(1 * (h[1:] - h[:-1]).pow(2).mean() for h in rnn_hs[-1:])
            loss.backward()
            for name_w in model.dropped.weights:  # the raw weight takes what was trained
                getattr(model.dropped, name_w + "_raw").data.copy_(getattr(model.dropped.module, name_w).data)
            torch.nn.utils.clip_grad_norm_(params, 0.25)
            optimizer.step()
            with torch.no_grad():
                model.dropped.weight_hh_l0_raw.copy_(model.rnns[0].weight_hh_l0)
            total_loss += raw_loss.data
            i += 6
        out.append(total_loss.item() / len(data))
        if "t0" in optimizer.param_groups[0]:
            tmp = {}
            for prm in params:
                tmp[prm] = prm.data.clone()
                prm.data = optimizer.state[prm]["ax"].clone()
            model.eval()
            with torch.no_grad():
                output, _ = model(data[:5], model.init_hidden(4), None)
                out.append(math.exp(criterion(model.decoder(output), data[1:6].reshape(-1)).item()))
            for prm in params:
                prm.data = tmp[prm].clone()
        elif epoch == 0:
            optimizer = torch.optim.ASGD(params, lr=0.5, t0=0, lambd=0.0, weight_decay=1.2e-6)
    return out


def pointer_generator(torch, compiled=False):
    """See, Liu and Manning's summaries: packed sentences, attention with coverage, words copied by `scatter_add`, forced by a coin, a beam."""
    nn, F = torch.nn, torch.nn.functional
    pack, unpack = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence
    PAD, BOS, EOS, V, H, E = 0, 1, 2, 15, 8, 6

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(V, E, padding_idx=PAD)
            self.lstm = nn.LSTM(E, H, num_layers=1, batch_first=True, bidirectional=True)
            self.reduce_h, self.reduce_c = nn.Linear(H * 2, H), nn.Linear(H * 2, H)
            self.W_h = nn.Linear(H * 2, H * 2, bias=False)

        def forward(self, input, seq_lens):
            packed = pack(self.embedding(input), seq_lens, batch_first=True, enforce_sorted=False)
            output, (h, c) = self.lstm(packed)
            encoder_outputs, _ = unpack(output, batch_first=True, total_length=input.size(1))
            encoder_outputs = encoder_outputs.contiguous()
            h_in, c_in = (t.transpose(0, 1).contiguous().view(-1, H * 2) for t in (h, c))
            state = F.relu(self.reduce_h(h_in)).unsqueeze(0), F.relu(self.reduce_c(c_in)).unsqueeze(0)
            return encoder_outputs, self.W_h(encoder_outputs.view(-1, 2 * H)), state

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.W_c, self.decode_proj, self.v = nn.Linear(1, H * 2, bias=False), nn.Linear(H * 2, H * 2), nn.Linear(H * 2, 1, bias=False)

        def forward(self, s_t_hat, encoder_outputs, encoder_feature, enc_padding_mask, coverage):
            b, t_k, n = list(encoder_outputs.size())
            dec_fea = self.decode_proj(s_t_hat).unsqueeze(1).expand(b, t_k, n).contiguous().view(-1, n)
            att_features = encoder_feature + dec_fea + self.W_c(coverage.view(-1, 1))
            scores = self.v(torch.tanh(att_features)).view(-1, t_k)
            attn_dist_ = F.softmax(scores, dim=1) * enc_padding_mask
            attn_dist = attn_dist_ / attn_dist_.sum(1, keepdim=True)
            c_t = torch.bmm(attn_dist.unsqueeze(1), encoder_outputs).view(-1, H * 2)
            return c_t, attn_dist.view(-1, t_k), coverage.view(-1, t_k) + attn_dist

    class Decoder(nn.Module):
        def __init__(self, embedding):
            super().__init__()
            self.attention_network, self.embedding = Attention(), embedding
            self.x_context, self.lstm = nn.Linear(H * 2 + E, E), nn.LSTM(E, H, batch_first=True)
            self.p_gen_linear = nn.Linear(H * 4 + E, 1)
            self.out1, self.out2 = nn.Linear(H * 3, H), nn.Linear(H, V)

        def forward(self, y_t_1, s_t_1, encoder_outputs, encoder_feature, mask, c_t_1, extra_zeros, enc_batch_extend_vocab, coverage):
            x = self.x_context(torch.cat((c_t_1, self.embedding(y_t_1)), 1))
            lstm_out, s_t = self.lstm(x.unsqueeze(1), s_t_1)
            s_t_hat = torch.cat([t.view(-1, H) for t in s_t], 1)
            c_t, attn_dist, coverage_next = self.attention_network(s_t_hat, encoder_outputs, encoder_feature, mask, coverage)
            p_gen = torch.sigmoid(self.p_gen_linear(torch.cat((c_t, s_t_hat, x), 1)))
            output = self.out2(self.out1(torch.cat((lstm_out.view(-1, H), c_t), 1)))
            vocab_dist_ = p_gen * F.softmax(output, dim=1)
            if extra_zeros is not None:
                vocab_dist_ = torch.cat([vocab_dist_, extra_zeros], 1)
            final_dist = vocab_dist_.scatter_add(1, enc_batch_extend_vocab, (1 - p_gen) * attn_dist)
            return final_dist, s_t, c_t, attn_dist, p_gen, coverage_next

    rng = np.random.RandomState(9)
    sentences = [rng.randint(3, V + 2, n).tolist() for n in (5, 8, 3)]  # V and V + 1 are words of the text alone
    lengths = torch.tensor([len(s) for s in sentences])
    extended = nn.utils.rnn.pad_sequence([torch.tensor(s) for s in sentences], batch_first=True, padding_value=PAD)
    source = extended.masked_fill(extended >= V, 3)
    mask = (torch.arange(extended.size(1))[None, :] < lengths[:, None]).float()
    target = nn.utils.rnn.pad_sequence([torch.tensor([*s[:3], EOS]) for s in sentences], batch_first=True)

    encoder = begin(torch, Encoder(), 1)
    decoder = begin(torch, Decoder(encoder.embedding), 2)
    with torch.no_grad():
        encoder.embedding.weight[PAD].fill_(0)
    params = list(encoder.parameters()) + [p for n, p in decoder.named_parameters() if not n.startswith("embedding")]
    optimizer, out = torch.optim.Adagrad(params, lr=0.15, initial_accumulator_value=0.1), []
    step_of = torch.compile(decoder, backend="eager") if compiled else decoder
    pyrandom.seed(5)
    for _ in range(3):
        encoder_outputs, encoder_feature, s_t = encoder(source, lengths)
        c_t, coverage, y_t = torch.zeros(3, 2 * H), torch.zeros(3, extended.size(1)), torch.full((3,), BOS)
        step_losses, use_teacher_forcing = [], pyrandom.random() < 0.5
        for di in range(target.size(1)):
            final_dist, s_t, c_t, attn_dist, _p_gen, next_coverage = step_of(
                y_t, s_t, encoder_outputs, encoder_feature, mask, c_t, torch.zeros(3, 2), extended, coverage
            )
            gold_probs = torch.gather(final_dist, 1, target[:, di].unsqueeze(1)).squeeze()
            step_loss = -torch.log(gold_probs + 1e-12) + 1.0 * torch.sum(torch.min(attn_dist, coverage), 1)
            step_losses.append(step_loss * (target[:, di] != PAD).float())
            coverage = next_coverage
            y_t = target[:, di] if use_teacher_forcing else final_dist.argmax(-1).detach()
            y_t = y_t.where(y_t < V, torch.full_like(y_t, 3))
        loss = torch.mean(torch.sum(torch.stack(step_losses, 1), 1) / (target != PAD).sum(1))
        optimizer.zero_grad()
        loss.backward()
        norms = [nn.utils.clip_grad_norm_(m.parameters(), 2.0).item() for m in (encoder, decoder)]
        optimizer.step()
        out += [loss.item(), *norms]

    class Beam:
        def __init__(self, tokens, log_probs, state, context, coverage):
            self.tokens, self.log_probs, self.state, self.context, self.coverage = tokens, log_probs, state, context, coverage

        @property
        def avg_log_prob(self):
            return sum(self.log_probs) / len(self.tokens)

    with torch.no_grad():
        n = 3
        rows = [t[1:2].expand(n, *t.shape[1:]).contiguous() for t in (source, lengths, mask, extended)]
        encoder_outputs, encoder_feature, (h0, c0) = encoder(rows[0], rows[1])
        beams = [Beam([BOS], [0.0], (h0[:, 0], c0[:, 0]), torch.zeros(2 * H), torch.zeros(extended.size(1))) for _ in range(n)]
        for steps in range(4):
            latest = torch.LongTensor([min(h.tokens[-1], V - 1) for h in beams])
            state = tuple(torch.stack([h.state[i] for h in beams], 1) for i in range(2))
            c_t, coverage = torch.stack([h.context for h in beams], 0), torch.stack([h.coverage for h in beams], 0)
            final_dist, s_t, c_t, _a, _p, coverage = decoder(
                latest, state, encoder_outputs, encoder_feature, rows[2], c_t, torch.zeros(n, 2), rows[3], coverage
            )
            topk_log_probs, topk_ids = torch.topk(torch.log(final_dist), n * 2)
            every = [
                Beam(
                    [*h.tokens, topk_ids[i, j].item()], [*h.log_probs, topk_log_probs[i, j].item()], (s_t[0][:, i], s_t[1][:, i]), c_t[i],
                    coverage[i],
                )
                for i, h in enumerate(beams[: 1 if steps == 0 else n]) for j in range(n * 2)
            ]  # fmt: skip
            beams = sorted(every, key=lambda h: h.avg_log_prob, reverse=True)[:n]
    return [*out, beams[0].avg_log_prob, *map(float, beams[0].tokens)]


PROGRAMS = [llama, awd_lstm, pointer_generator]
