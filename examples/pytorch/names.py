"""Names of three languages, told apart by a GRU over packed sequences, as PyTorch's tutorials are written."""

import string

import tengen.pytorch as torch
import tengen.pytorch.nn as nn
import tengen.pytorch.nn.functional as F
from tengen.pytorch.nn.utils.rnn import pack_padded_sequence, pad_sequence

NAMES = {
    "German": ["schmidt", "mueller", "weber", "schulz"], "Italian": ["rossi", "russo", "ferrari", "esposito"],
    "Japanese": ["sato", "suzuki", "takahashi", "tanaka"],
}  # fmt: skip
languages = sorted(NAMES)
torch.manual_seed(3)


class Classifier(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.embedding = nn.Embedding(27, 12, padding_idx=0)
        self.rnn = nn.GRU(12, hidden, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.out = nn.Linear(2 * hidden, len(languages))

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embedding(x), lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, hidden = self.rnn(packed)
        return F.log_softmax(self.out(torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1)), dim=-1)


encoded = [torch.tensor([1 + string.ascii_lowercase.index(c) for c in name]) for language in languages for name in NAMES[language]]
labels = torch.tensor([i for i, language in enumerate(languages) for _ in NAMES[language]])
lengths = torch.tensor([len(x) for x in encoded])
padded = pad_sequence(encoded, batch_first=True)

net = Classifier()
optimizer = torch.optim.RMSprop(net.parameters(), lr=5e-3)
criterion = nn.NLLLoss()
losses = []
for _ in range(12):
    total = 0.0
    for chosen in torch.randperm(len(labels)).split(4):
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(net(padded[chosen], lengths[chosen]), labels[chosen])
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 1.0)
        optimizer.step()
        total += loss.item() * chosen.size(0)
    losses.append(total / len(labels))

net.eval()
confusion = torch.zeros(len(languages), len(languages))
with torch.no_grad():
    guesses = net(padded, lengths).topk(1).indices.squeeze(1)
    for truth, guess in zip(labels, guesses):
        confusion[truth][guess] += 1
for language, row in zip(languages, confusion / confusion.sum(1, keepdim=True)):
    print(f"{language:10}", " ".join(f"{share:4.2f}" for share in row.tolist()))
