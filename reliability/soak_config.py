"""
The recipe for the CPU in fast-forward, as the soak runs it: a tiny network, a small buffer, and everything else often.

A config like those in configs/: full collection, an evaluation and a save every few seconds. The hook of type ``soak``
is registered by ``soak_sections.py``.
"""

from ding.config import read_config

from breakout_env.cli.common import shipped

# found by the package, as DI-engine reads a config from a copy elsewhere
main_config, create_config = read_config(str(shipped('configs/breakout_dqn_cpu_config.py')))

main_config.exp_name = 'run'
main_config.env.update(evaluator_env_num=2, n_evaluator_episode=2)
# an untrained agent may keep the ball in play for long, and waits for ever where it never serves
main_config.env.evaluator.update(max_episode_frames=600)
main_config.policy.random_collect_size = 256
main_config.policy.model.encoder_hidden_size_list = [4, 4, 4, 8]
main_config.policy.learn.update(update_per_collect=16, batch_size=16)
main_config.policy.learn.learner.hook.update(
    # those of best scores remain; others would be files that are there to stay
    save_ckpt_after_iter=10**9,
    soak=dict(type='soak', name='soak', position='after_iter'),
)
main_config.policy.learn.learner.hook.resume.ext_args.save_every_s = 0.25
main_config.policy.eval.evaluator.eval_freq = 640
main_config.policy.other.eps.decay = 10_000
main_config.policy.other.replay_buffer.replay_buffer_size = 4000
