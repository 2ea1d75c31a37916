"""More programs as PyTorch's tutorials and MegEngine's models write them, with names changed only, on toy data: each learns its task."""

import copy

import numpy as np
import pytest
from exhaustive import exhaustive

import tengen as mge
import tengen.functional as F
import tengen.module as M
import tengen.module as nn
import tengen.optimizer as optim
from tengen import Tensor, random
from tengen.autodiff import Function, GradManager, no_grad
from tengen.data import DataLoader, Dataset

pytestmark = exhaustive


@pytest.fixture(autouse=True)
def seeded():
    random.manual_seed(0)
    np.random.seed(0)


def test_megengine_bert():
    """BERT as MegEngine's models write it: embeddings, layers of self-attention, masked words and a classifier."""

    class BertLayerNorm(M.Module):
        def __init__(self, hidden_size, eps=1e-12):
            super().__init__()
            self.weight = mge.Parameter(np.ones(hidden_size).astype(np.float32))
            self.bias = mge.Parameter(np.zeros(hidden_size).astype(np.float32))
            self.variance_epsilon = eps

        def forward(self, x):
            u = F.mean(x, len(x.shape) - 1, True)
            s = F.mean((x - u) ** 2, len(x.shape) - 1, True)
            x = (x - u) / ((s + self.variance_epsilon) ** 0.5)
            return self.weight * x + self.bias

    class BertEmbeddings(M.Module):
        def __init__(self, vocab, hidden, positions):
            super().__init__()
            self.word_embeddings, self.position_embeddings = M.Embedding(vocab, hidden), M.Embedding(positions, hidden)
            self.token_type_embeddings, self.LayerNorm, self.dropout = M.Embedding(2, hidden), BertLayerNorm(hidden), M.Dropout(0.1)

        def forward(self, input_ids, token_type_ids=None):
            seq_length = input_ids.shape[1]
            if token_type_ids is None:
                token_type_ids = F.zeros_like(input_ids)
            position_ids = F.linspace(0, seq_length - 1, seq_length).astype(np.int32)
            position_ids = F.broadcast_to(F.expand_dims(position_ids, 0), input_ids.shape)
            e = self.word_embeddings(input_ids) + self.position_embeddings(position_ids) + self.token_type_embeddings(token_type_ids)
            return self.dropout(self.LayerNorm(e))

    class BertSelfAttention(M.Module):
        def __init__(self, hidden, heads):
            super().__init__()
            self.num_attention_heads, self.attention_head_size = heads, hidden // heads
            self.query, self.key, self.value = M.Linear(hidden, hidden), M.Linear(hidden, hidden), M.Linear(hidden, hidden)
            self.dense, self.LayerNorm, self.dropout = M.Linear(hidden, hidden), BertLayerNorm(hidden), M.Dropout(0.1)

        def transpose_for_scores(self, x):
            x = x.reshape(x.shape[0], x.shape[1], self.num_attention_heads, -1)
            return x.transpose(0, 2, 1, 3)

        def forward(self, hidden_states, attention_mask):
            q, k, v = (self.transpose_for_scores(f(hidden_states)) for f in (self.query, self.key, self.value))
            scores = F.matmul(q, k.transpose(0, 1, 3, 2)) / self.attention_head_size**0.5 + attention_mask
            context = F.matmul(self.dropout(F.softmax(scores, axis=-1)), v).transpose(0, 2, 1, 3)
            context = context.reshape(context.shape[0], context.shape[1], -1)
            return self.LayerNorm(self.dropout(self.dense(context)) + hidden_states)

    class BertLayer(M.Module):
        def __init__(self, hidden, heads):
            super().__init__()
            self.attention = BertSelfAttention(hidden, heads)
            self.intermediate, self.output, self.LayerNorm = M.Linear(hidden, 2 * hidden), M.Linear(2 * hidden, hidden), BertLayerNorm(hidden)

        def forward(self, x, mask):
            x = self.attention(x, mask)
            return self.LayerNorm(self.output(F.gelu(self.intermediate(x))) + x)

    class BertModel(M.Module):
        def __init__(self, vocab=11, hidden=16, heads=2, layers=2):
            super().__init__()
            self.embeddings = BertEmbeddings(vocab, hidden, 8)
            self.encoder = [BertLayer(hidden, heads) for _ in range(layers)]
            self.pooler, self.cls, self.classifier = M.Linear(hidden, hidden), M.Linear(hidden, vocab), M.Linear(hidden, 2)

        def forward(self, input_ids, attention_mask):
            extended = (1.0 - F.expand_dims(attention_mask, (1, 2))) * -10000.0
            x = self.embeddings(input_ids)
            for layer in self.encoder:
                x = layer(x, extended)
            return self.cls(x), self.classifier(F.tanh(self.pooler(x[:, 0])))

    ids = np.random.randint(2, 10, (4, 6)).astype("int32")
    labels = (ids[:, 1] > 5).astype("int32")
    masked = ids.copy()
    masked[:, 3] = 1
    attention_mask = mge.tensor(np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]] * 2, np.float32))
    net = BertModel()
    assert sum("encoder.1" in n for n, _ in net.named_parameters()) == 16
    gm = GradManager().attach(net.parameters())
    opt = optim.AdamW(net.parameters(), lr=0.01)

    @mge.jit.trace(symbolic=True)
    def train_func(input_ids, mask, words, label):
        with gm:
            scores, logits = net(input_ids, mask)
            loss = F.loss.cross_entropy(scores[:, 3], words) + F.loss.cross_entropy(logits, label)
            gm.backward(loss)
        optim.clip_grad_norm(net.parameters(), 1.0)
        opt.step().clear_grad()
        return loss

    losses = [train_func(mge.tensor(masked), attention_mask, mge.tensor(ids[:, 3]), mge.tensor(labels)).item() for _ in range(15)]
    assert losses[-1] < 0.5 * losses[0]
    net.eval()
    other = masked.copy()
    other[1, 5] = 7  # hidden by the mask
    a, b = (net(mge.tensor(x), attention_mask)[1].numpy() for x in (masked, other))
    assert a.tobytes() == b.tobytes()


def test_megengine_gan():
    """A GAN of residual blocks with spectral norm and the hinge loss, updated as MegEngine's GAN library does: several steps of D, one of G."""

    class GBlock(M.Module):
        def __init__(self, c_in, c_out):
            super().__init__()
            self.b1, self.c1 = M.BatchNorm2d(c_in), M.Conv2d(c_in, c_out, 3, padding=1)
            self.c_sc = M.Conv2d(c_in, c_out, 1)

        def forward(self, x):
            up = lambda h: F.vision.interpolate(h, scale_factor=2, mode="bilinear", align_corners=False)
            return self.c1(up(F.relu(self.b1(x)))) + self.c_sc(up(x))

    class Generator(M.Module):
        def __init__(self, nz=4, ngf=8):
            super().__init__()
            self.nz, self.ngf = nz, ngf
            self.l1, self.block, self.c = M.Linear(nz, ngf * 16), GBlock(ngf, ngf), M.Conv2d(ngf, 1, 3, 1, padding=1)
            M.init.xavier_uniform_(self.l1.weight, 1.0)

        def forward(self, x):
            h = self.l1(x).reshape(-1, self.ngf, 4, 4)
            return F.tanh(self.c(F.relu(self.block(h))))

    class Discriminator(M.Module):
        def __init__(self, ndf=8):
            super().__init__()
            self.c1, self.c2, self.l = M.spectral_norm(M.Conv2d(1, ndf, 3, 2, 1)), M.Conv2d(ndf, ndf, 3, 2, 1), M.Linear(ndf, 1)

        def forward(self, x):
            h = F.leaky_relu(self.c2(F.leaky_relu(self.c1(x), 0.1)), 0.1)
            return self.l(F.sum(h, axis=(2, 3)))

    netG, netD = Generator(), Discriminator()
    gm_G, gm_D = GradManager().attach(netG.parameters()), GradManager().attach(netD.parameters())
    optG, optD = (optim.Adam(n.parameters(), lr=0.02, betas=(0.0, 0.9)) for n in (netG, netD))
    real = mge.tensor((np.random.rand(8, 1, 1, 1) * 0.5 + 0.4).astype("float32") * np.ones((8, 1, 8, 8), "float32"))
    history = []
    for _ in range(10):
        for _ in range(2):
            with gm_D:
                with no_grad():
                    fake = netG(mge.random.normal(size=(8, netG.nz)))
                errD = F.relu(1.0 - netD(real)).mean() + F.relu(1.0 + netD(fake)).mean()
                gm_D.backward(errD)
            optD.step().clear_grad()
        with gm_G:
            errG = -netD(netG(mge.random.normal(size=(8, netG.nz)))).mean()
            gm_G.backward(errG)
        optG.step().clear_grad()
        history.append(abs((fake.mean() - real.mean()).item()))
    assert min(history) < 0.7 * history[0] and np.isfinite(history).all() and fake.shape == (8, 1, 8, 8)


def test_vae():
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc21, self.fc22 = nn.Linear(16, 12), nn.Linear(12, 2), nn.Linear(12, 2)
            self.fc3, self.fc4 = nn.Linear(2, 12), nn.Linear(12, 16)

        def encode(self, x):
            h1 = F.relu(self.fc1(x))
            return self.fc21(h1), self.fc22(h1)

        def reparameterize(self, mu, logvar):
            std = F.exp(0.5 * logvar)
            eps = random.randn(*std.shape)
            return mu + eps * std

        def decode(self, z):
            return F.sigmoid(self.fc4(F.relu(self.fc3(z))))

        def forward(self, x):
            mu, logvar = self.encode(x.view(-1, 16))
            return self.decode(self.reparameterize(mu, logvar)), mu, logvar

    model = VAE().to("cpu")
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    gm = GradManager().attach(model.parameters())
    data = Tensor((np.random.rand(32, 1, 4, 4) > [[[[0.9, 0.1, 0.9, 0.1]]]]).astype("float32"))
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        with gm:
            recon_batch, mu, logvar = model(data)
            BCE = F.loss.binary_cross_entropy(recon_batch, data.view(-1, 16), with_logits=False, reduction="sum")
            KLD = -0.5 * F.sum(1 + logvar - mu.pow(2) - logvar.exp())
            gm.backward(BCE + KLD)
        optimizer.step()
        losses.append((BCE + KLD).item())
    assert losses[-1] < 0.8 * losses[0] and model.decode(random.randn(2, 2)).view(2, 1, 4, 4).shape == (2, 1, 4, 4)


def test_unet_segmentation():
    class DoubleConv(nn.Module):
        def __init__(self, in_channels, out_channels):
            super().__init__()
            self.double_conv = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False), nn.BatchNorm2d(out_channels), nn.ReLU(inplace=True),
            )  # fmt: skip

        def forward(self, x):
            return self.double_conv(x)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.inc, self.down, self.pool = DoubleConv(1, 4), DoubleConv(4, 8), nn.MaxPool2d(2)
            self.up, self.conv = nn.ConvTranspose2d(8, 4, kernel_size=2, stride=2), DoubleConv(8, 4)
            self.outc = nn.Conv2d(4, 2, kernel_size=1)

        def forward(self, x):
            x1 = self.inc(x)
            x2 = self.up(self.down(self.pool(x1)))
            diff = x1.shape[2] - x2.shape[2]
            x2 = nn.ZeroPad2d([0, diff, 0, diff])(x2)
            return self.outc(self.conv(F.concat([x1, x2], dim=1)))

    x = np.random.randn(2, 1, 7, 7).astype("float32")
    y = (x[:, 0] > 0).astype("int64")
    y[:, 0] = 255  # not labelled
    net, criterion = UNet(), nn.CrossEntropyLoss(ignore_index=255, weight=Tensor([0.5, 1.0]))
    gm, optimizer = GradManager().attach(net.parameters()), optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        with gm:
            loss = criterion(net(Tensor(x)), Tensor(y))
            gm.backward(loss)
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_graph_convolution():
    """Messages along edges summed up by index_add, self-loops, degrees."""

    class GCNConv(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.lin, self.bias = nn.Linear(a, b, bias=False), nn.Parameter(F.zeros(b))

        def forward(self, x, edge_index):
            n = x.shape[0]
            loop = F.arange(n).long()
            row, col = F.concat([edge_index[0], loop]), F.concat([edge_index[1], loop])
            deg = F.zeros(n).scatter_add_(0, col, F.ones(col.shape))
            deg_inv_sqrt = deg.pow(-0.5)
            deg_inv_sqrt.masked_fill_(deg_inv_sqrt == float("inf"), 0)
            norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
            out = F.index_add(F.zeros((n, self.bias.shape[0])), 0, col, norm.unsqueeze(-1) * self.lin(x)[row])
            return out + self.bias

    edges = Tensor([[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]])
    conv1, conv2 = GCNConv(6, 8), GCNConv(8, 2)
    params = [*conv1.parameters(), *conv2.parameters()]
    gm, optimizer = GradManager().attach(params), optim.Adam(params, lr=0.05, weight_decay=5e-4)
    mask, y = Tensor([True, False, False, False, False, True]), Tensor([0, 0, 0, 1, 1, 1])
    for _ in range(15):
        with gm:
            out = F.log_softmax(conv2(F.relu(conv1(F.eye(6), edges)), edges), dim=1)
            loss = F.loss.nll_loss(out[mask], y[mask])
            gm.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    assert out.argmax(dim=1).eq(y).sum().item() == 6


def test_custom_function_ema_accumulation_and_freezing():
    """A function with a gradient of one's own; gradients of several batches added up; the average of weights; a backbone that is frozen."""

    class MyReLU(Function):
        def forward(self, input):
            self.saved = input
            return input.clamp(min=0)

        def backward(self, grad_output):
            grad_input = grad_output.clone()
            grad_input[self.saved < 0] = 0
            return grad_input

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone, self.fc = nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Linear(8, 1)

        def forward(self, x):
            return MyReLU()(self.fc(self.backbone(x)) + 1.0)

    model = Net()
    model.apply(lambda m: nn.init.kaiming_normal_(m.weight) if isinstance(m, nn.Linear) else None)
    frozen = model.backbone.state_dict()["0.weight"].copy()
    ema = copy.deepcopy(model)
    gm, optimizer = GradManager().attach(model.fc.parameters()), optim.SGD(model.fc.parameters(), lr=0.1)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)

    class Rows(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            x = np.cos(np.arange(4) + i).astype("float32")
            return x, x[:1] + 1.0

    def collate(batch):
        return F.stack([Tensor(x) for x, _ in batch]), F.stack([Tensor(y) for _, y in batch])

    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        total = 0.0
        for i, (x, y) in enumerate(DataLoader(Rows(), batch_size=3, shuffle=True, collate_fn=collate)):
            with gm:
                loss = F.loss.mse_loss(model(x), y) / 2
                gm.backward(loss)
            total += loss.item()
            if (i + 1) % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
                with no_grad():
                    for p, q in zip(ema.parameters(), model.parameters()):
                        p.data.mul_(0.9).add_(q.data, alpha=0.1)
        scheduler.step()
        losses.append(total)
    assert losses[-1] < 0.5 * losses[0] and scheduler.get_last_lr() == [0.05]
    assert model.backbone[0].weight.numpy().tobytes() == frozen.tobytes()
    gap = lambda m: np.abs(m.fc.weight.numpy() - model.fc.weight.numpy()).max()
    assert 0 < gap(ema) < 0.5


def test_distillation_triplets_and_features():
    """A student learns a teacher's softened scores; features are taken by a hook and compared by cosine and triplets."""
    teacher, student = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    features = {}
    handle = student[1].register_forward_hook(lambda module, input, output: features.__setitem__("relu", output.detach()))
    x, labels, T = random.randn(32, 4), random.randint(0, 3, (32,)), 2.0
    gm, optimizer = GradManager().attach(student.parameters()), optim.AdamW(student.parameters(), lr=0.02)
    ce = nn.CrossEntropyLoss()
    with no_grad():
        soft_targets = F.softmax(teacher(x) / T, dim=-1)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        with gm:
            logits = student(x)
            soft_prob = F.log_softmax(logits / T, dim=-1)
            soft = F.sum(soft_targets * (soft_targets.log() - soft_prob)) / soft_prob.shape[0] * (T**2)
            loss = 0.9 * soft + 0.1 * ce(logits, labels)
            gm.backward(loss)
        optimizer.step()
        losses.append(soft.item())
    handle.remove()
    assert losses[-1] < 0.5 * losses[0] and features["relu"].shape == (32, 6)
    f = features["relu"]
    near = nn.TripletMarginLoss(margin=0.0)(f, f + 0.01, f + 10.0)
    assert near.item() == 0.0 and nn.CosineSimilarity(dim=1)(f + 0.1, f + 0.1).mean().item() == pytest.approx(1.0, abs=1e-5)
    assert nn.CosineEmbeddingLoss()(f + 0.1, f + 0.1, F.ones(32)).item() == pytest.approx(0.0, abs=1e-5)


def test_spatial_transformer_and_lbfgs():
    """The localisation of a spatial transformer, found by LBFGS with a closure."""
    theta = nn.Parameter(Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]))
    yy, xx = np.mgrid[-1:1:9j, -1:1:9j].astype("float32")
    image, target = (Tensor(np.exp(-((xx - d) ** 2 + yy**2) * 2)[None, None]) for d in (0.0, 0.3))
    gm, optimizer = GradManager().attach([theta]), optim.LBFGS([theta], lr=1, max_iter=10)

    def closure():
        optimizer.zero_grad()
        with gm:
            grid = F.vision.affine_grid(theta, (1, 1, 9, 9), align_corners=True)
            loss = F.loss.mse_loss(F.vision.grid_sample(image, grid, align_corners=True), target)
            gm.backward(loss)
        return loss

    first = closure().item()
    optimizer.step(closure)
    assert closure().item() < 0.1 * first and theta.tolist()[0][0][2] == pytest.approx(-0.3, abs=0.1)


def test_word2vec_time_series_and_an_ode():
    """Skip-gram with negative samples; an LSTM that forecasts; Euler's steps of a learnt field in a while loop."""
    vocab, u, v = 8, nn.Embedding(8, 6), nn.Embedding(8, 6)
    params = [*u.parameters(), *v.parameters()]
    gm, optimizer = GradManager().attach(params), optim.Adam(params, lr=0.05)
    pairs = Tensor([(i, (i + 1) % vocab) for i in range(vocab)])
    losses = []
    for _ in range(10):
        negatives = random.randint(0, vocab, (vocab, 3))
        with gm:
            center = u(pairs[:, 0])
            good = F.logsigmoid((center * v(pairs[:, 1])).sum(dim=1))
            bad = F.logsigmoid(-F.bmm(v(negatives), center.unsqueeze(2)).squeeze(2)).sum(1)
            loss = -(good + bad).mean()
            gm.backward(loss)
        optimizer.step().clear_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.linear = nn.LSTM(1, 8, num_layers=1, batch_first=True), nn.Linear(8, 1)

        def forward(self, x):
            out, (h, c) = self.lstm(x)
            return self.linear(out[:, -1, :])

    series = np.sin(np.arange(40) / 3).astype("float32")
    windows = Tensor(np.stack([series[i : i + 8] for i in range(30)])).unsqueeze(-1)
    target = Tensor(series[8:38]).view(-1, 1)
    net = Forecaster()
    gm, optimizer = GradManager().attach(net.parameters()), optim.RMSprop(net.parameters(), lr=0.01)
    losses = []
    for _ in range(10):
        with gm:
            loss = nn.SmoothL1Loss()(net(windows), target)
            gm.backward(loss)
        optimizer.step().clear_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    field, state = nn.Linear(2, 2, bias=False), Tensor([[1.0, 0.0]])
    gm, optimizer = GradManager().attach(field.parameters()), optim.SGD(field.parameters(), lr=0.2)
    ends = []
    for _ in range(8):
        with gm:
            y, t = state, 0.0
            while t < 1.0:
                y = y + 0.25 * field(y)
                t += 0.25
            loss = (y - Tensor([[0.0, 1.0]])).pow(2).sum()
            gm.backward(loss)
        optimizer.step().clear_grad()
        ends.append(loss.item())
    assert ends[-1] < 0.2 * ends[0]
