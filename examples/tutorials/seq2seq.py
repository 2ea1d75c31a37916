"""PyTorch's tutorial "translation with a sequence to sequence network and attention", with names changed alone: sequences are reversed."""

import numpy as np

import tengen.functional as F
import tengen.module as nn
import tengen.optimizer as optim
from tengen import Tensor
from tengen.autodiff import GradManager, no_grad
from tengen.data import DataLoader, RandomSampler, TensorDataset

SOS, LENGTH, WORDS = 0, 5, 10


class Encoder(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return self.gru(self.dropout(self.embedding(x)))


class Attention(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.Wa = nn.Linear(hidden_size, hidden_size)
        self.Ua = nn.Linear(hidden_size, hidden_size)
        self.Va = nn.Linear(hidden_size, 1)

    def forward(self, query, keys):
        scores = self.Va(F.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
        weights = F.softmax(scores, dim=-1)
        return F.bmm(weights, keys), weights


class Decoder(nn.Module):
    def __init__(self, hidden_size, output_size):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attention = Attention(hidden_size)
        self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, outputs, hidden, target=None):
        word, found = F.full((outputs.shape[0], 1), SOS), []
        for i in range(LENGTH):
            context, _ = self.attention(hidden.permute(1, 0, 2), outputs)
            output, hidden = self.gru(F.concat((self.embedding(word), context), dim=2), hidden)
            found.append(self.out(output))
            word = found[-1].argmax(-1).detach() if target is None else target[:, i].unsqueeze(1)
        return F.logsoftmax(F.concat(found, dim=1), dim=-1)


x = np.random.default_rng(0).integers(1, WORDS, (128, LENGTH))
data = TensorDataset(x, x[:, ::-1])
loader = DataLoader(data, sampler=RandomSampler(data, seed=0), batch_size=32)
encoder, decoder = Encoder(WORDS, 24), Decoder(24, WORDS)
parameters = [*encoder.parameters(), *decoder.parameters()]
optimizer, gm, criterion = optim.Adam(parameters, lr=0.01), GradManager().attach(parameters), nn.NLLLoss()
losses = []
for _ in range(6):
    for source, target in loader:
        source, target = Tensor(source), Tensor(target)
        with gm:
            log_probabilities = decoder(*encoder(source), target)
            loss = criterion(log_probabilities.view(-1, WORDS), target.view(-1))
            gm.backward(loss)
        optimizer.step().clear_grad()
        losses.append(loss.item())
with no_grad():
    encoder.eval()
    words = decoder(*encoder(Tensor(x[:1]))).argmax(-1)
print(f"{losses[0]:.2f} -> {losses[-1]:.2f}; {x[0].tolist()} is {words[0].tolist()}")
