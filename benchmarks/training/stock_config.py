"""The trio that comes with DI-engine, ``dqn``, ``subprocess`` manager and ``advanced`` buffer, on ``BreakoutEnv``, with
the network and settings of its Atari examples (``dizoo/atari/config/serial/pong/pong_dqn_config.py``).
"""

from easydict import EasyDict

from configs.breakout_dqn_config import create_config, main_config  # with the repository's root on PYTHONPATH

main_config.exp_name = 'run'
main_config.env.evaluator.max_episode_frames = 20000  # a bound on games of an agent that has learned nothing yet
policy = main_config.policy
policy.update(cuda=False, nstep=3, discount_factor=0.99, random_collect_size=0)
policy.model.update(encoder_hidden_size_list=[128, 128, 512], head='ding', orthogonal=False)  # as DI-engine's
policy.learn.update(update_per_collect=10, batch_size=32, learning_rate=0.0001, target_update_freq=500)
policy.learn.learner.hook.save_ckpt_after_iter = 500  # one is of 228 MB
policy.collect.n_sample = 96
policy.eval.evaluator.eval_freq = 4000
policy.other.eps.update(type='exp', start=1.0, end=0.05, decay=250000)
policy.other.replay_buffer.replay_buffer_size = 100000
create_config.replay_buffer = EasyDict(type='advanced')
