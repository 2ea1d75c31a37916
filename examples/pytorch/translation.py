"""A transformer that turns sequences of numbers round, as PyTorch's tutorial on translation is written."""

import math

import tengen.pytorch as torch
from tengen.pytorch import Tensor, nn
from tengen.pytorch.nn.utils.rnn import pad_sequence
from tengen.pytorch.utils.data import DataLoader

PAD, BOS, EOS, WORDS = 0, 1, 2, 16
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)


class PositionalEncoding(nn.Module):
    def __init__(self, size: int, dropout: float = 0.0, longest: int = 50):
        super().__init__()
        rates = torch.exp(-torch.arange(0, size, 2) * math.log(10000) / size)
        position = torch.arange(0, longest).reshape(longest, 1)
        encoding = torch.zeros((longest, size))
        encoding[:, 0::2] = torch.sin(position * rates)
        encoding[:, 1::2] = torch.cos(position * rates)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("encoding", encoding.unsqueeze(-2))

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x + self.encoding[: x.size(0), :])


class Translator(nn.Module):
    def __init__(self, size: int = 32, heads: int = 4, layers: int = 1):
        super().__init__()
        self.transformer = nn.Transformer(size, heads, layers, layers, dim_feedforward=64, dropout=0.0)
        self.embedding = nn.Embedding(WORDS, size)
        self.position = PositionalEncoding(size)
        self.generator = nn.Linear(size, WORDS)

    def embedded(self, tokens: Tensor) -> Tensor:
        return self.position(self.embedding(tokens.long()) * math.sqrt(self.embedding.embedding_dim))

    def forward(self, source, target, target_mask, source_padding, target_padding):
        out = self.transformer(
            self.embedded(source), self.embedded(target), None, target_mask, None, source_padding, target_padding, source_padding
        )
        return self.generator(out)


def causal(size: int) -> Tensor:
    mask = (torch.triu(torch.ones((size, size), device=device)) == 1).transpose(0, 1)
    return mask.float().masked_fill(mask == 0, float("-inf")).masked_fill(mask == 1, 0.0)


def collate(batch):
    ends = lambda ids: torch.cat((torch.tensor([BOS]), ids, torch.tensor([EOS])))
    return tuple(pad_sequence([ends(pair[i]) for pair in batch], padding_value=PAD) for i in range(2))


def pairs(n):
    for _ in range(n):
        words = torch.randint(3, WORDS, (int(torch.randint(2, 5, (1,))),))
        yield words, torch.flip(words, (0,))


@torch.no_grad()
def translate(model, words):
    model.eval()
    source = torch.cat((torch.tensor([BOS]), words, torch.tensor([EOS]))).view(-1, 1)
    memory = model.transformer.encoder(model.embedded(source))
    target = torch.full((1, 1), BOS, dtype=torch.long)
    for _ in range(len(words) + 1):
        out = model.transformer.decoder(model.embedded(target), memory, causal(target.size(0)))
        _, word = torch.max(model.generator(out[-1]), dim=1)
        target = torch.cat([target, word.view(1, 1)])
        if word.item() == EOS:
            break
    return target.flatten()[1:]


model = Translator().to(device)
for p in model.parameters():
    if p.dim() > 1:
        nn.init.xavier_uniform_(p)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
optimizer = torch.optim.Adam(model.parameters(), lr=0.006, betas=(0.9, 0.98), eps=1e-9)
losses = []
for epoch in range(14):
    model.train()
    for source, target in DataLoader(list(pairs(192)), batch_size=64, collate_fn=collate):
        given = target[:-1, :]
        logits = model(source, given, causal(given.size(0)), (source == PAD).t(), (given == PAD).t())
        optimizer.zero_grad()
        loss = criterion(logits.reshape(-1, WORDS), target[1:, :].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    if epoch % 4 == 1:
        print(f"epoch {epoch}: loss {losses[-1]:.3f}")
print("3 4 5 is turned to", translate(model, torch.tensor([3, 4, 5])).tolist())
