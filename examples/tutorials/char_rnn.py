"""PyTorch's tutorial "classifying names with a character-level RNN", with names changed alone: a few names of three languages."""

import random
import string

import tengen.functional as F
import tengen.module as nn
from tengen import Tensor
from tengen.autodiff import GradManager

letters = string.ascii_letters + " .,;'"
names = {
    "Greek": ["Adamidis", "Akrivopoulos", "Alexandropoulos"], "Korean": ["Ahn", "Baik", "Bang"],
    "Dutch": ["Aalsburg", "Aalst", "Aarle"],
}  # fmt: skip
languages = list(names)


def line_to_tensor(line):
    x = F.zeros((len(line), 1, len(letters)))
    for i, letter in enumerate(line):
        x[i, 0, letters.find(letter)] = 1
    return x


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size, hidden_size)
        self.h2h = nn.Linear(hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, x, hidden):
        hidden = F.tanh(self.i2h(x) + self.h2h(hidden))
        return self.softmax(self.h2o(hidden)), hidden


rnn = RNN(len(letters), 16, len(languages))
criterion = nn.NLLLoss()
gm = GradManager().attach(rnn.parameters())
random.seed(0)
losses = []


def scores_of(name):
    hidden = F.zeros((1, rnn.hidden_size))
    for x in line_to_tensor(name):
        output, hidden = rnn(x, hidden)
    return output


for _ in range(60):
    language = random.choice(languages)
    name = random.choice(names[language])
    with gm:
        loss = criterion(scores_of(name), Tensor([languages.index(language)]))
        gm.backward(loss)
    for p in rnn.parameters():
        p -= 0.1 * p.grad
        p.grad = None
    losses.append(loss.item())
print(f"{sum(losses[:20]) / 20:.2f} -> {sum(losses[-20:]) / 20:.2f}; Bang is {languages[scores_of('Bang').argmax(1).item()]}")
