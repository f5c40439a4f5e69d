"""DQN as CleanRL writes it: one file that reads from top to bottom, on gymnasium's vector interface.

``python cleanrl_dqn.py --help`` shows the options; the defaults are from CleanRL's Atari DQN, with 8 games at a
time and, thanks to the replay buffer ``frame``, a million transitions in 0.29 GB instead of 56 GB.
"""

import argparse
import random
import time
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from breakout_env import FrameReplayBuffer


@dataclass
class Args:
    seed: int = 1
    cuda: bool = True  # where there is a GPU
    total_timesteps: int = 10_000_000
    num_envs: int = 8
    learning_rate: float = 1e-4
    buffer_size: int = 1_000_000
    gamma: float = 0.99
    target_network_frequency: int = 1000  # env steps between two copies into the target network
    batch_size: int = 32
    start_e: float = 1.0
    end_e: float = 0.01
    exploration_fraction: float = 0.1  # of total_timesteps, until epsilon is end_e
    learning_starts: int = 80_000
    train_frequency: int = 4  # env steps for each update
    save: str = 'cleanrl_dqn_breakout.pt'


class QNetwork(nn.Module):
    def __init__(self, envs):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
            nn.Linear(512, envs.single_action_space.n),
        )

    def forward(self, x):
        return self.network(x / 255.0)


def linear_schedule(start, end, duration, t):
    return max(end, start + (end - start) * t / duration)


def train(args):
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() and args.cuda else 'cpu')

    envs = gym.make_vec('breakout_env/Breakout-v0', num_envs=args.num_envs)
    q_network = QNetwork(envs).to(device)
    target_network = QNetwork(envs).to(device)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)
    rb = FrameReplayBuffer(dict(replay_buffer_size=args.buffer_size))

    scores, updates, start_time = [], 0, time.time()
    obs, _ = envs.reset(seed=args.seed)
    try:
        for global_step in range(0, args.total_timesteps, args.num_envs):
            duration = args.exploration_fraction * args.total_timesteps
            epsilon = linear_schedule(args.start_e, args.end_e, duration, global_step)
            actions = np.random.randint(envs.single_action_space.n, size=args.num_envs)
            greedy = np.random.rand(args.num_envs) >= epsilon
            if greedy.any():
                with torch.no_grad():
                    q_values = q_network(torch.as_tensor(obs[greedy], device=device))
                actions[greedy] = q_values.argmax(dim=1).cpu().numpy()

            next_obs, rewards, terminations, truncations, infos = envs.step(actions)
            # where an episode has ended, next_obs is already the next one's first observation
            real_next_obs = next_obs.copy()
            for i in np.flatnonzero(terminations | truncations):
                real_next_obs[i] = infos['final_obs'][i]
                if infos['final_info'].get('_game_return', np.zeros(args.num_envs))[i]:
                    scores.append(infos['final_info']['game_return'][i])
            rb.push(
                [
                    dict(obs=obs[i], next_obs=real_next_obs[i], action=a, reward=float(rewards[i]), done=bool(d))
                    for i, (a, d) in enumerate(zip(actions.tolist(), terminations))
                ]
            )
            obs = next_obs

            if global_step < args.learning_starts or rb.count() < args.batch_size:
                continue
            for _ in range(max(1, args.num_envs // args.train_frequency)):
                batch = rb.sample(args.batch_size).collated()
                data = {key: batch[key].to(device) for key in ('obs', 'next_obs', 'action', 'reward', 'done')}
                with torch.no_grad():
                    target_max = target_network(data['next_obs']).max(dim=1).values
                    td_target = data['reward'] + args.gamma * target_max * ~data['done']
                old_val = q_network(data['obs']).gather(1, data['action'][:, None]).squeeze(1)
                loss = F.mse_loss(td_target, old_val)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                updates += 1
            if global_step % args.target_network_frequency < args.num_envs:
                target_network.load_state_dict(q_network.state_dict())
                speed = global_step / (time.time() - start_time)
                mean = np.mean(scores[-100:]) if scores else float('nan')
                print(f'step {global_step}: score {mean:.1f}, loss {loss.item():.4f}, {speed:.0f} steps/s')
        torch.save(q_network.state_dict(), args.save)
    finally:
        envs.close()
        rb.close()
    return updates, scores


def main(argv=None):
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for field in fields(Args):
        name = '--' + field.name.replace('_', '-')
        if field.type is bool:
            parser.add_argument(name, action=argparse.BooleanOptionalAction, default=field.default)
        else:
            parser.add_argument(name, type=field.type, default=field.default)
    return train(Args(**vars(parser.parse_args(argv))))


if __name__ == '__main__':
    main()
