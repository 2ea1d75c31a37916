"""Programs as PyTorch's tutorials and MegEngine's models write them, with names changed only, on toy data: each learns its task."""

import numpy as np
import pytest
from exhaustive import exhaustive

import tengen as mge
import tengen.functional as F
import tengen.module as M
import tengen.optimizer as optim
from tengen import Tensor
from tengen.autodiff import GradManager, no_grad
from tengen.data import DataLoader
from tengen.data.dataset import ArrayDataset


@pytest.fixture(autouse=True)
def seeded():
    mge.random.seed(0)
    np.random.seed(0)


def weights_init(m):
    name = m.__class__.__name__
    if name.find("Conv") != -1:
        M.init.normal_(m.weight, 0.0, 0.02)
    elif name.find("BatchNorm") != -1:
        M.init.normal_(m.weight, 1.0, 0.02)
        M.init.zeros_(m.bias)


def test_dcgan():
    """DCGAN: a generator of transposed convolutions against a discriminator."""
    nz, ngf, ndf = 6, 4, 4

    class Generator(M.Module):
        def __init__(self):
            super().__init__()
            self.main = M.Sequential(
                M.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False), M.BatchNorm2d(ngf * 2), M.ReLU(),
                M.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), M.BatchNorm2d(ngf), M.ReLU(),
                M.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False), M.Tanh(),
            )  # fmt: skip

        def forward(self, input):
            return self.main(input)

    class Discriminator(M.Module):
        def __init__(self):
            super().__init__()
            self.main = M.Sequential(
                M.Conv2d(1, ndf, 4, 2, 1, bias=False), M.LeakyReLU(0.2), M.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
                M.BatchNorm2d(ndf * 2), M.LeakyReLU(0.2), M.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False), M.Sigmoid(),
            )  # fmt: skip

        def forward(self, input):
            return self.main(input)

    netG, netD = Generator(), Discriminator()
    netG.apply(weights_init)
    netD.apply(weights_init)
    criterion = lambda p, y: F.loss.binary_cross_entropy(p, y, with_logits=False)
    optimizerD = optim.Adam(netD.parameters(), lr=0.01, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=0.01, betas=(0.5, 0.999))
    gmD, gmG = GradManager().attach(netD.parameters()), GradManager().attach(netG.parameters())
    data = np.sign(np.random.randn(8, 1, 1, 1)).astype("float32") * np.ones((8, 1, 16, 16), "float32") * 0.8
    losses = []
    for _ in range(6):
        real = Tensor(data)
        noise = mge.random.normal(size=(8, nz, 1, 1))
        fake = netG(noise)
        with gmD:
            errD_real = criterion(netD(real).view(-1), F.ones(8))
            errD_fake = criterion(netD(fake.detach()).view(-1), F.zeros(8))
            gmD.backward(errD_real + errD_fake)
        optimizerD.step().clear_grad()
        with gmG:
            errG = criterion(netD(netG(noise)).view(-1), F.ones(8))
            gmG.backward(errG)
        optimizerG.step().clear_grad()
        losses.append((errD_real + errD_fake).item())
    assert fake.shape == (8, 1, 16, 16) and losses[-1] < losses[0] and np.isfinite(losses).all() and netD(real).shape == (8, 1, 1, 1)


def test_char_rnn_classification():
    """Names to languages, with a recurrent network written out."""
    letters = "abcd"
    names = {"first": ["abab", "aab", "ba", "abba"], "second": ["cdcd", "ccd", "dc", "cddc"]}
    categories = list(names)

    def line_to_tensor(line):
        tensor = F.zeros((len(line), 1, len(letters)))
        for li, letter in enumerate(line):
            tensor[li, 0, letters.find(letter)] = 1
        return tensor

    class RNN(M.Module):
        def __init__(self, input_size, hidden_size, output_size):
            super().__init__()
            self.hidden_size = hidden_size
            self.i2h = M.Linear(input_size, hidden_size)
            self.h2h = M.Linear(hidden_size, hidden_size)
            self.h2o = M.Linear(hidden_size, output_size)

        def forward(self, input, hidden):
            hidden = F.tanh(self.i2h(input) + self.h2h(hidden))
            output = F.logsoftmax(self.h2o(hidden), axis=1)
            return output, hidden

        def init_hidden(self):
            return F.zeros((1, self.hidden_size))

    rnn = RNN(len(letters), 8, len(categories))
    gm = GradManager().attach(rnn.parameters())

    def train(category, line_tensor):
        hidden = rnn.init_hidden()
        rnn.zero_grad()
        with gm:
            for i in range(line_tensor.shape[0]):
                output, hidden = rnn(line_tensor[i], hidden)
            loss = F.loss.nll_loss(output, category)
            gm.backward(loss)
        for p in rnn.parameters():
            p += -0.2 * p.grad
        return output, loss.item()

    losses = []
    for _ in range(6):
        total = 0.0
        for c, category in enumerate(categories):
            for line in names[category]:
                output, loss = train(Tensor([c]), line_to_tensor(line))
                total += loss
        losses.append(total)
    assert losses[-1] < 0.5 * losses[0] and categories[int(output.topk(1, descending=True)[1][0, 0].item())] == "second"


def test_seq2seq_with_attention():
    """An encoder, and a decoder that attends to what it made (Bahdanau); teacher forcing."""
    hidden, words, length = 12, 6, 4

    class EncoderRNN(M.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.gru = M.Embedding(words, hidden), M.GRU(hidden, hidden, batch_first=True)
            self.dropout = M.Dropout(0.1)

        def forward(self, input):
            return self.gru(self.dropout(self.embedding(input)))

    class BahdanauAttention(M.Module):
        def __init__(self):
            super().__init__()
            self.Wa, self.Ua, self.Va = M.Linear(hidden, hidden), M.Linear(hidden, hidden), M.Linear(hidden, 1)

        def forward(self, query, keys):
            scores = self.Va(F.tanh(self.Wa(query) + self.Ua(keys)))
            weights = F.softmax(scores.squeeze(2).unsqueeze(1), axis=-1)
            return weights @ keys, weights

    class AttnDecoderRNN(M.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.attention = M.Embedding(words, hidden), BahdanauAttention()
            self.gru, self.out = M.GRU(2 * hidden, hidden, batch_first=True), M.Linear(hidden, words)

        def forward(self, encoder_outputs, encoder_hidden, target):
            decoder_input, h, outputs, attentions = F.zeros((target.shape[0], 1), dtype="int32"), encoder_hidden, [], []
            for i in range(length):
                context, weights = self.attention(h.permute(1, 0, 2), encoder_outputs)
                output, h = self.gru(F.concat((self.embedding(decoder_input), context), 2), h)
                outputs.append(self.out(output))
                attentions.append(weights)
                decoder_input = target[:, i].unsqueeze(1)
            return F.logsoftmax(F.concat(outputs, 1), axis=-1), h, F.concat(attentions, 1)

    x = np.random.randint(1, words, (16, length))
    loader = DataLoader(ArrayDataset(x, x[:, ::-1].copy()), batch_size=8, shuffle=True)
    encoder, decoder = EncoderRNN(), AttnDecoderRNN()
    parameters = [*encoder.parameters(), *decoder.parameters()]
    gm, opt, losses = GradManager().attach(parameters), optim.Adam(parameters, lr=0.02), []
    for _ in range(8):
        for source, target in loader:
            source, target = Tensor(source), Tensor(target)
            with gm:
                outputs, h = encoder(source)
                result, _, attentions = decoder(outputs, h, target)
                loss = F.loss.nll_loss(result.view(-1, words), target.view(-1))
                gm.backward(loss)
            optim.clip_grad_norm(parameters, 1.0)
            opt.step().clear_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0] and attentions.shape == (8, length, length)
    np.testing.assert_allclose(attentions.numpy().sum(-1), 1, rtol=1e-5)


def test_reinforce():
    """A policy by REINFORCE, for a bandit that sees which arm pays."""
    policy = M.Sequential(M.Linear(3, 8), M.Dropout(0.0), M.ReLU(), M.Linear(8, 3))
    gm, optimizer = GradManager().attach(policy.parameters()), optim.Adam(policy.parameters(), lr=0.05)
    means = []
    for _ in range(25):
        states = np.eye(3, dtype="float32")[np.random.randint(0, 3, 16)]
        with gm:
            m = mge.distributions.Categorical(F.softmax(policy(Tensor(states)), axis=1))
            action = m.sample()
            rewards = (action.numpy() == states.argmax(1)).astype("float32")
            returns = Tensor((rewards - rewards.mean()) / (rewards.std() + 1e-6))
            gm.backward((-m.log_prob(action) * returns).sum())
        optimizer.step().clear_grad()
        means.append(rewards.mean())
    assert np.mean(means[-5:]) > np.mean(means[:5]) + 0.2


def test_neural_style():
    """The pixels of an image learn the Gram matrices of one and the features of another."""
    cnn = M.Sequential(M.Conv2d(3, 8, 3, padding=1), M.ReLU(), M.Conv2d(8, 8, 3, padding=1), M.ReLU()).eval()

    def gram_matrix(input):
        a, b, c, d = input.shape
        features = input.view(a * b, c * d)
        return features @ features.t() / (a * b * c * d)

    content, style = (mge.random.uniform(size=(1, 3, 12, 12)) for _ in range(2))
    with no_grad():
        wanted, target = cnn[:2](content), gram_matrix(cnn(style))
    image = mge.Parameter(content.clone() + mge.random.normal(std=0.3, size=content.shape))
    gm, optimizer, losses = GradManager().attach(image), optim.LBFGS([image], max_iter=4), []

    def closure():
        with no_grad():
            image[...] = image.clip(0, 1)
        optimizer.clear_grad()
        with gm:
            loss = 1e4 * F.loss.square_loss(gram_matrix(cnn(image)), target) + F.loss.square_loss(cnn[:2](image), wanted)
            gm.backward(loss)
        losses.append(loss.item())
        return loss

    for _ in range(4):
        optimizer.step(closure)
    assert losses[-1] < 0.5 * losses[0]


@exhaustive
def test_deeplab_head():
    """DeepLabV3+'s ASPP and decoder over a small backbone, with a poly schedule; pixels are classified."""

    class ASPP(M.Module):
        def __init__(self, in_channels, out_channels, dr=1):
            super().__init__()
            conv = lambda k, d: M.Sequential(
                M.Conv2d(in_channels, out_channels, k, 1, padding=0 if k == 1 else d * dr, dilation=d * dr, bias=False),
                M.BatchNorm2d(out_channels), M.ReLU(),
            )  # fmt: skip
            self.conv1, self.conv2 = conv(1, 1), conv(3, 2)
            self.convgp = M.Sequential(M.Conv2d(in_channels, out_channels, 1, 1, bias=False), M.BatchNorm2d(out_channels), M.ReLU())
            self.conv_out = M.Sequential(M.Conv2d(out_channels * 3, out_channels, 1), M.BatchNorm2d(out_channels), M.ReLU())

        def forward(self, x):
            gp = self.convgp(F.mean(F.mean(x, 2, True), 3, True))
            gp = F.vision.interpolate(gp, (x.shape[2], x.shape[3]))
            return self.conv_out(F.concat([self.conv1(x), self.conv2(x), gp], axis=1))

    class DeepLabV3Plus(M.Module):
        def __init__(self, num_classes):
            super().__init__()
            self.low = M.Sequential(M.Conv2d(3, 6, 3, 2, 1), M.BatchNorm2d(6), M.ReLU())
            self.high = M.Sequential(M.Conv2d(6, 8, 3, 2, 1), M.BatchNorm2d(8), M.ReLU())
            self.aspp, self.dropout = ASPP(8, 8), M.Dropout(0.1)
            self.upstage1 = M.Conv2d(6, 4, 1, 1)
            self.conv_out = M.Conv2d(12, num_classes, 1, 1)
            for m in self.modules():
                if isinstance(m, M.Conv2d):
                    M.init.msra_normal_(m.weight, mode="fan_out", nonlinearity="relu")

        def forward(self, x):
            low = self.low(x)
            up = F.vision.interpolate(self.dropout(self.aspp(self.high(low))), size=low.shape[2:])
            return F.vision.interpolate(self.conv_out(F.concat([up, self.upstage1(low)], 1)), scale_factor=2)

    net = DeepLabV3Plus(2)
    image = np.random.randn(4, 3, 16, 16).astype("float32")
    label = (np.arange(16) < 8).astype("int32")[None, None] * np.ones((4, 16, 1), "int32")
    image[:, 0] += 3 * label
    groups = optim.decay_groups(net, 1e-4)
    opt = optim.SGD(groups, lr=0.1, momentum=0.9)
    gm, losses = GradManager().attach(net.parameters()), []

    @mge.trace(symbolic=True)
    def train_func(data, label):
        with gm:
            pred = net(data)
            loss = F.loss.cross_entropy(pred, label)
            gm.backward(loss)
        return loss

    for step in range(8):
        for g in opt.param_groups:
            g["lr"] = 0.1 * (1 - step / 8) ** 0.9
        losses.append(train_func(Tensor(image), Tensor(label)).item())
        opt.step().clear_grad()
    net.eval()
    accuracy = (F.argmax(net(Tensor(image)), axis=1).numpy() == label).mean()
    assert losses[-1] < losses[0] and accuracy > 0.8 and len(train_func.stats()) == 1
