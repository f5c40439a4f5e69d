"""Stable-Baselines3's PPO on this package's Breakout. First ``pip install 'stable-baselines3>=2.6'``, then ``python
sb3_ppo.py``.

The environment brings DQN's preprocessing, so no wrapper of Stable-Baselines3 is needed. The settings are from RL
Baselines3 Zoo for Atari games, with 10 million env steps.
"""

import argparse

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import SubprocVecEnv

ENV_ID = 'breakout_env:breakout_env/Breakout-v0'


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument('--total-timesteps', type=int, default=10_000_000)
    parser.add_argument('--num-envs', type=int, default=8)
    parser.add_argument('--num-steps', type=int, default=128, help='env steps of each environment between updates')
    parser.add_argument('--eval-games', type=int, default=10)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--save', default='sb3_ppo_breakout.zip')
    args = parser.parse_args(argv)

    envs = make_vec_env(ENV_ID, args.num_envs, seed=args.seed, vec_env_cls=SubprocVecEnv)
    # full games with raw rewards, and FIRE after a lost life
    eval_env = make_vec_env(ENV_ID, 1, seed=args.seed, env_kwargs=dict(is_train=False))
    try:
        model = PPO(
            'CnnPolicy',
            envs,
            learning_rate=lambda remaining: 2.5e-4 * remaining,
            n_steps=args.num_steps,
            batch_size=min(256, args.num_steps * args.num_envs),
            n_epochs=4,
            clip_range=lambda remaining: 0.1 * remaining,
            ent_coef=0.01,
            vf_coef=0.5,
            seed=args.seed,
            verbose=1,
        )
        model.learn(args.total_timesteps)
        model.save(args.save)
        mean, deviation = evaluate_policy(model, eval_env, args.eval_games, deterministic=False)
        print(f'score over {args.eval_games} games: {mean:.1f} +- {deviation:.1f}')
    finally:
        envs.close()
        eval_env.close()
    return model


if __name__ == '__main__':
    main()
