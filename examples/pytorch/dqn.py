"""Q learning with a replay memory and a slow copy of the network, as PyTorch's tutorial on it is written: a cart is kept near 0."""

import math
import random
from collections import deque, namedtuple

import numpy as np

import tengen.pytorch as torch
import tengen.pytorch.nn as nn
import tengen.pytorch.nn.functional as F
from tengen.pytorch import optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
BATCH, GAMMA, TAU = 32, 0.9, 0.05
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
random.seed(0)
torch.manual_seed(0)


class Cart:
    """A place and a speed; each step pushes to the left or to the right."""

    def reset(self):
        self.state, self.steps = np.array([random.uniform(-1, 1), 0.0]), 0
        return self.state.copy()

    def step(self, action):
        place, speed = self.state
        speed = 0.9 * speed + 0.2 * (2 * action - 1)
        self.state, self.steps = np.array([place + speed, speed]), self.steps + 1
        lost = abs(self.state[0]) > 2
        return self.state.copy(), -1.0 if lost else 1.0 - abs(place), lost, self.steps >= 25


class DQN(nn.Module):
    def __init__(self, observations, actions):
        super().__init__()
        self.layer1 = nn.Linear(observations, 32)
        self.layer2 = nn.Linear(32, actions)

    def forward(self, x):
        return self.layer2(F.relu(self.layer1(x)))


policy, target = DQN(2, 2).to(device), DQN(2, 2).to(device)
target.load_state_dict(policy.state_dict())
optimizer = optim.AdamW(policy.parameters(), lr=5e-3, amsgrad=True)
memory, done_steps = deque([], maxlen=2000), 0


def select_action(state):
    global done_steps
    epsilon = 0.05 + 0.85 * math.exp(-done_steps / 200)
    done_steps += 1
    if random.random() > epsilon:
        with torch.no_grad():
            return policy(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(2)]], device=device, dtype=torch.long)


def optimize():
    if len(memory) < BATCH:
        return
    batch = Transition(*zip(*random.sample(memory, BATCH)))
    alive = torch.tensor(tuple(s is not None for s in batch.next_state), device=device, dtype=torch.bool)
    values = policy(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    following = torch.zeros(BATCH, device=device)
    with torch.no_grad():
        following[alive] = target(torch.cat([s for s in batch.next_state if s is not None])).max(1).values
    loss = nn.SmoothL1Loss()(values, (following * GAMMA + torch.cat(batch.reward)).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()


env, lasted = Cart(), []
for episode in range(40):
    state, over, total = torch.tensor(env.reset(), dtype=torch.float32, device=device).unsqueeze(0), False, 0.0
    while not over:
        action = select_action(state)
        observation, reward, lost, over = env.step(action.item())
        over = over or lost
        following = None if lost else torch.tensor(observation, dtype=torch.float32, device=device).unsqueeze(0)
        memory.append(Transition(state, action, following, torch.tensor([reward], device=device)))
        state, total = following, total + reward
        optimize()
        slow, quick = target.state_dict(), policy.state_dict()
        for key in quick:
            slow[key] = quick[key] * TAU + slow[key] * (1 - TAU)
        target.load_state_dict(slow)
    lasted.append(total)
    if episode % 10 == 9:
        print(f"episode {episode + 1}: reward {sum(lasted[-10:]) / 10:.1f}")
losses = [25.0 - reward for reward in lasted]  # what was missed of the most that there is
