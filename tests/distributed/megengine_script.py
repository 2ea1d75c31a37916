"""Data parallel training as MegEngine's public training scripts write it: a worker for each device, started by a launcher.

The text is theirs but for the first imports, where `tengen` stands for `megengine`; `test_megengine_script.py` runs it.
"""

import argparse
import os

import numpy as np

import tengen as mge
import tengen.autodiff as autodiff
import tengen.data as data
import tengen.data.transform as T
import tengen.distributed as dist
import tengen.functional as F
import tengen.module as M
import tengen.optimizer as optim

logger = mge.get_logger(__name__)


class Net(M.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.conv1 = M.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = M.SyncBatchNorm(8) if dist.get_world_size() > 1 else M.BatchNorm2d(8)
        self.relu = M.ReLU()
        self.fc = M.Linear(8, num_classes)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = F.avg_pool2d(x, x.shape[2])
        return self.fc(F.flatten(x, 1))


class Pictures(data.dataset.Dataset):
    """Pictures whose class is the brightest quarter."""

    def __init__(self, n, seed):
        super().__init__()
        rng = np.random.RandomState(seed)
        self.y = rng.randint(0, 4, n).astype("int32")
        self.x = rng.randint(0, 100, (n, 8, 8, 3)).astype("uint8")
        for x, y in zip(self.x, self.y):
            x[y // 2 * 4 : y // 2 * 4 + 4, y % 2 * 4 : y % 2 * 4 + 4, y % 3] += 120

    def __getitem__(self, i):
        return self.x[i], self.y[i]

    def __len__(self):
        return len(self.y)


def main(argv=None):
    parser = argparse.ArgumentParser(description="MegEngine ImageNet Training")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("-n", "--ngpus", default=None, type=int, help="number of GPUs per node (default: None, use all available GPUs)")
    parser.add_argument("-b", "--batch-size", default=16, type=int, help="batch size for single GPU (default: 128)")
    parser.add_argument("--lr", default=0.1, type=float)
    parser.add_argument("--momentum", default=0.9, type=float)
    parser.add_argument("--weight-decay", default=1e-4, type=float)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("-j", "--workers", default=0, type=int)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--dist-addr", default="localhost")
    parser.add_argument("--dist-port", default=23456, type=int)
    parser.add_argument("--world-size", default=1, type=int)
    parser.add_argument("--rank", default=0, type=int)
    args = parser.parse_args(argv)

    # create server if is master
    if args.rank <= 0:
        server = dist.Server(port=0)
        assert server.py_server_port > 0
    if args.ngpus is None:
        args.ngpus = dist.helper.get_device_count_by_fork("gpu")

    if args.world_size * args.ngpus > 1:
        dist_worker = dist.launcher(
            master_ip=args.dist_addr, port=args.dist_port, world_size=args.world_size * args.ngpus, rank_start=args.rank * args.ngpus,
            n_gpus=args.ngpus,
        )(worker)  # fmt: skip
        return dist_worker(args)
    return worker(args)


def worker(args):
    if dist.get_rank() == 0:
        os.makedirs(os.path.join(args.output), exist_ok=True)
    mge.random.seed(7)
    train_dataloader, valid_dataloader = build_dataset(args)
    model = Net()

    # Sync parameters and buffers
    if dist.get_world_size() > 1:
        dist.bcast_list_(model.parameters())
        dist.bcast_list_(model.buffers())

    # Autodiff gradient manager
    gm = autodiff.GradManager().attach(
        model.parameters(), callbacks=dist.make_allreduce_cb("mean") if dist.get_world_size() > 1 else None,
    )  # fmt: skip
    opt = optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum, weight_decay=args.weight_decay * dist.get_world_size())

    def train_step(image, label):
        with gm:
            logits = model(image)
            loss = F.nn.cross_entropy(logits, label)
            acc1, acc2 = F.topk_accuracy(logits, label, topk=(1, 2))
            gm.backward(loss)
            opt.step().clear_grad()
        return loss, acc1, acc2

    def valid_step(image, label):
        logits = model(image)
        loss = F.nn.cross_entropy(logits, label)
        acc1, acc2 = F.topk_accuracy(logits, label, topk=(1, 2))
        # calculate mean values
        if dist.get_world_size() > 1:
            loss = F.distributed.all_reduce_sum(loss) / dist.get_world_size()
            acc1 = F.distributed.all_reduce_sum(acc1) / dist.get_world_size()
            acc2 = F.distributed.all_reduce_sum(acc2) / dist.get_world_size()
        return loss, acc1, acc2

    if args.trace:
        train_step = mge.jit.trace(train_step, symbolic=True)
        valid_step = mge.jit.trace(valid_step, symbolic=True)

    losses, seen = [], []
    for _ in range(args.epochs):
        model.train()
        for image, label in train_dataloader:
            loss, _, _ = train_step(mge.tensor(image, dtype="float32"), mge.tensor(label, dtype="int32"))
            losses.append(float(loss.item()))
            seen.append(np.asarray(label).tolist())
        model.eval()
        accs = [float(valid_step(mge.tensor(i, dtype="float32"), mge.tensor(t, dtype="int32"))[1].item()) for i, t in valid_dataloader]
        logger.info("valid accuracy %f", np.mean(accs))
    if dist.get_rank() == 0:
        state = {"epoch": args.epochs, "state_dict": model.state_dict(), "optimizer": opt.state_dict()}
        mge.save(state, os.path.join(args.output, "checkpoint.pkl"))
    dist.group_barrier()
    state = mge.load(os.path.join(args.output, "checkpoint.pkl"))["state_dict"]
    same = all(np.array_equal(np.asarray(v), np.asarray(state[k])) for k, v in model.state_dict().items())
    return losses, float(np.mean(accs)), same, seen


def build_dataset(args):
    train_dataset, valid_dataset = Pictures(96, 0), Pictures(64, 1)
    train_sampler = data.RandomSampler(train_dataset, batch_size=args.batch_size, drop_last=True, seed=3)
    transform = [T.Normalize(mean=[103.530, 116.280, 123.675], std=[57.375, 57.120, 58.395]), T.ToMode("CHW")]
    flipped = T.Compose([T.RandomHorizontalFlip(0.0), *transform])
    train_dataloader = data.DataLoader(train_dataset, sampler=train_sampler, transform=flipped, num_workers=args.workers)
    valid_sampler = data.SequentialSampler(valid_dataset, batch_size=16, drop_last=False)
    plain = T.Compose(transform)
    valid_dataloader = data.DataLoader(valid_dataset, sampler=valid_sampler, transform=plain, num_workers=args.workers)
    return train_dataloader, valid_dataloader


if __name__ == "__main__":
    main()
