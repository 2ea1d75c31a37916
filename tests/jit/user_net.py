"""A module as users write them, with everything that may change between two calls of a trace: parts, lists, numbers, tables."""

import tengen.module as M


class Net(M.Module):
    """A user's module."""

    width = 2.0

    def __init__(self):
        super().__init__()
        self.fc, self.k, self.parts = M.Linear(6, 6), 2.0, [M.Linear(6, 6), M.Linear(6, 6)]
        self.flags = {"k": 2.0}
        self.other = 0

    def forward(self, x):
        x = self.fc(x) * self.k * self.width * self.flags["k"]
        for p in self.parts:
            x = p(x)
        return x if self.training else -x
