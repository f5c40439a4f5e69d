"""
DQN on Breakout by DI-engine's Agent API: train, evaluate and deploy in a few lines::

    python agent_api.py

The API logs to Weights & Biases, with ``exp_name`` as the project, in which a slash is not allowed. Here that is off
unless WANDB_MODE says otherwise. It makes all environments by ``BreakoutEnv.clone``.
"""

import os

from breakout_env import BreakoutEnv, PixelDQN  # first: it keeps what DI-engine prints from the screen

# isort: split
from ding.bonus import DQNAgent

ENV_ID = 'BreakoutNoFrameskip-v4'
ENV_STEPS = int(os.environ.get('BREAKOUT_ENV_STEPS', '1000000'))

config = dict(
    exp_name='breakout_agent',
    # The API asks for an env_id that it knows; BreakoutEnv below has the environment's options.
    env=dict(env_id=ENV_ID, collector_env_num=8, evaluator_env_num=8, n_evaluator_episode=8, stop_value=400),
    policy=dict(
        cuda=False,
        priority=False,
        discount_factor=0.99,
        nstep=3,
        random_collect_size=20000,
        model=dict(obs_shape=[4, 84, 84], action_shape=4, dueling=True, head='paper'),
        learn=dict(update_per_collect=8, batch_size=32, learning_rate=0.0001, target_update_freq=1000),
        collect=dict(n_sample=32),
        eval=dict(evaluator=dict(eval_freq=10000)),
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.01, decay=200000),
            # DI-engine's buffer keeps 56 kB a transition here; a pipeline with this package's keeps 0.2 kB.
            replay_buffer=dict(replay_buffer_size=50000),
        ),
    ),
    wandb_logger=dict(
        gradient_logger=False, video_logger=False, plot_logger=False, action_logger=False, return_logger=False
    ),
)


def main() -> None:
    """Train an agent, play with its best weights, and print the scores."""
    os.environ.setdefault('WANDB_MODE', 'disabled')
    DQNAgent.supported_env_list.append(ENV_ID)
    # Screens as uint8, which the model scales on its own device. Evaluation plays full games for their points.
    env = BreakoutEnv(dict(max_episode_frames=108000, evaluator=dict(random_action_probability=0.01)))
    model = PixelDQN(**config['policy']['model'])
    agent = DQNAgent(cfg=config, env=env, model=model)
    agent.train(step=ENV_STEPS)
    agent = agent.best
    print('8 games:', agent.batch_evaluate(env_num=8, n_evaluator_episode=8))
    print('1 game:', agent.deploy())


if __name__ == '__main__':
    main()
