"""A classifier of token sequences with an LSTM."""

from __future__ import annotations

import tengen.module as M
from tengen.models.build import network
from tengen.tensor import Tensor


class LSTMClassifier(M.Module):
    """Token ids (N, T) -> (N, num_classes), from the LSTM's last state.

    Args:
        vocabulary: ids are below it. embedding, hidden: features. layers: of the LSTM.
    """

    def __init__(
        self, vocabulary: int, num_classes: int = 2, embedding: int = 256, hidden: int = 256, layers: int = 1, drop_prob: float = 0.0
    ):
        super().__init__()
        self.embedding = M.Embedding(vocabulary, embedding)
        self.lstm = M.LSTM(embedding, hidden, layers, batch_first=True, dropout=drop_prob)
        self.dropout, self.head = M.Dropout(drop_prob), M.Linear(hidden, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        _, (h, _) = self.lstm(self.embedding(tokens))
        return self.head(self.dropout(h[-1]))


@network
def lstm(vocabulary: int = 8192, num_classes: int = 2, **options) -> LSTMClassifier:
    """An LSTM classifier with 256 features."""
    return LSTMClassifier(vocabulary, num_classes, **options)
