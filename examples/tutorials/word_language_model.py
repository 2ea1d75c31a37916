"""PyTorch's example "word-level language modeling using RNN", with names changed alone: the words count in a circle."""

import numpy as np

import tengen.functional as F
import tengen.module as nn
import tengen.optimizer as optim
from tengen import Tensor, random
from tengen.autodiff import GradManager, no_grad

WORDS, BATCH, BPTT = 12, 4, 10


class RNNModel(nn.Module):
    def __init__(self, kind, words, size, layers, dropout=0.2):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(words, size)
        self.rnn = getattr(nn, kind)(size, size, layers, dropout=dropout)
        self.decoder = nn.Linear(size, words)
        self.decoder.weight = self.encoder.weight  # tied
        nn.init.uniform_(self.encoder.weight, -0.3, 0.3)
        nn.init.zeros_(self.decoder.bias)
        self.words, self.size, self.layers = words, size, layers

    def forward(self, x, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        decoded = self.decoder(self.drop(output))
        return F.logsoftmax(decoded.view(-1, self.words), dim=1), hidden

    def init_hidden(self, batch):
        weight = next(iter(self.parameters()))
        return tuple(weight.new_zeros(self.layers, batch, self.size) for _ in range(2))


def batchify(data, batch):
    n = data.shape[0] // batch
    return data.narrow(0, 0, n * batch).view(batch, -1).t().contiguous()


random.seed(0)
data = batchify(Tensor(np.arange(324) % WORDS), BATCH)
model, criterion = RNNModel("LSTM", WORDS, 16, 2), nn.NLLLoss()
gm, hidden, losses = GradManager().attach(model.parameters()), model.init_hidden(BATCH), []
optimizer = optim.SGD(model.parameters(), lr=2.0, momentum=0.9)
for _ in range(4):
    for i in range(0, data.shape[0] - BPTT, BPTT):
        x, targets = data[i : i + BPTT], data[i + 1 : i + 1 + BPTT].view(-1)
        hidden = tuple(h.detach() for h in hidden)
        with gm:
            output, hidden = model(x, hidden)
            loss = criterion(output, targets)
            gm.backward(loss)
        optim.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step().clear_grad()
        losses.append(loss.item())

model.eval()
word, hidden, said = Tensor([[3]]), model.init_hidden(1), [3]
with no_grad():
    for _ in range(5):
        output, hidden = model(word, hidden)
        word[...] = random.multinomial(output.squeeze().exp(), 1)[0]
        said.append(word.item())
print(f"{losses[0]:.2f} -> {losses[-1]:.2f}; {said}")
