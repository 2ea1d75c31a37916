"""A training step that tests of memory trace."""

import tengen.functional as F
from tengen.autodiff import GradManager
from tengen.optimizer import SGD


def step_of(net):
    """One step of SGD with momentum on the sum of squares of a network's results: a function of a batch, which returns the loss."""
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(x):
        with gm:
            y = net(x)
            loss = F.sum(y * y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return step
