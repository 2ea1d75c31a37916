"""LeNet-5 as MegEngine's announcement has it, and scikit-learn's scanned digits at its size."""

from __future__ import annotations

import numpy as np

import tengen.functional as F
import tengen.module as M


class LeNet(M.Module):
    """Two convolutions, three linear maps: (N, 1, 32, 32) -> (N, 10)."""

    def __init__(self):
        super().__init__()
        self.conv1 = M.Conv2d(1, 6, 5)
        self.relu1 = M.ReLU()
        self.pool1 = M.MaxPool2d(2, 2)
        self.conv2 = M.Conv2d(6, 16, 5)
        self.relu2 = M.ReLU()
        self.pool2 = M.MaxPool2d(2, 2)
        self.fc1 = M.Linear(16 * 5 * 5, 120)
        self.relu3 = M.ReLU()
        self.fc2 = M.Linear(120, 84)
        self.relu4 = M.ReLU()
        self.classifier = M.Linear(84, 10)

    def forward(self, x):
        x = self.pool1(self.relu1(self.conv1(x)))
        x = self.pool2(self.relu2(self.conv2(x)))
        x = F.flatten(x, 1)
        x = self.relu3(self.fc1(x))
        x = self.relu4(self.fc2(x))
        return self.classifier(x)


def enlarge(images: np.ndarray, size: int) -> np.ndarray:
    """(N, H, W) images at size x size, by bilinear interpolation between pixel centres."""
    n = images.shape[1]
    at = np.clip((np.arange(size) + 0.5) * n / size - 0.5, 0, n - 1)
    low = np.minimum(at.astype(int), n - 2)
    share = (at - low).astype(np.float32)
    rows = images[:, low] * (1 - share)[:, None] + images[:, low + 1] * share[:, None]
    return rows[:, :, low] * (1 - share) + rows[:, :, low + 1] * share


def digits(seed: int = 0):
    """(train images, train labels, test images, test labels): 1,797 scanned digits, split 80/20, float32 (N, 1, 32, 32)."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = enlarge(raw.images.astype(np.float32), 32)[:, None]
    images = ((images - images.mean()) / images.std()).astype(np.float32)
    labels = raw.target.astype(np.int32)
    order = np.random.default_rng(seed).permutation(len(labels))
    cut = len(labels) * 4 // 5
    train, test = order[:cut], order[cut:]
    return images[train], labels[train], images[test], labels[test]
