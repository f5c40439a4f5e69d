"""
The recipe for the CPU, as the benchmarks of many processes run it: nothing is evaluated, and random play is short.

A config like those in configs/, so that all modes of training take it. What a benchmark changes besides comes from the
environment, as processes that serve a learner take a config and nothing else.
"""

import os

from ding.config import read_config

from breakout_env.cli.common import shipped

# found by the package, as DI-engine reads a config from a copy elsewhere
main_config, create_config = read_config(str(shipped('configs/breakout_dqn_cpu_config.py')))
_changed = {name: float(os.environ[name]) for name in os.environ if name.startswith('SCALE_')}

main_config.exp_name = 'scale'
main_config.env.update(collector_env_num=int(_changed.get('SCALE_ENVS', 8)), evaluator_env_num=1, n_evaluator_episode=1)
# the evaluations at both ends of a run can not be turned off, but made short
main_config.env.evaluator.update(max_episode_frames=200)
main_config.policy.random_collect_size = int(_changed.get('SCALE_RANDOM_STEPS', 1024))
main_config.policy.learn.update_per_collect = int(_changed.get('SCALE_UPDATES', 64))
main_config.policy.eval.evaluator.eval_freq = 10**9
# how often a network is asked must not depend on how far a training has got
_epsilon = _changed.get('SCALE_EPSILON', 0.1)
main_config.policy.other.eps.update(start=_epsilon, end=_epsilon)
# no saving of the run meanwhile, and a row of the log for each look at the clock
main_config.policy.learn.learner.hook.resume.ext_args.save_every_s = 86400
main_config.policy.learn.learner.hook.save_ckpt_after_iter = 10**9
main_config.policy.learn.learner.hook.progress.ext_args.log_every_s = 0.5
