"""
The shortest run of ``breakout_dqn_config.py`` with all steps: ``make demo`` trains, evaluates, records games with it::

    GOMP_SPINCOUNT=10000 ding -m serial -c configs/breakout_dqn_demo_config.py -s 0 --env-step 3000

trains for less than a minute on two CPU cores, for two minutes where other programs use them. The agent hardly learns.
"""

from ding.config import read_config

from breakout_env.run.recipes import shipped

main_config, create_config = read_config(str(shipped('configs/breakout_dqn_config.py')))
main_config.exp_name = 'experiments/breakout_dqn_demo'
main_config.env.update(collector_env_num=4, evaluator_env_num=4, n_evaluator_episode=4)
main_config.policy.random_collect_size = 1000
main_config.policy.learn.update(update_per_collect=4, target_update_freq=200)
main_config.policy.eval.evaluator.eval_freq = 500
main_config.policy.other.eps.update(end=0.05, decay=2000)
main_config.policy.other.replay_buffer.replay_buffer_size = 3000

if __name__ == '__main__':
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=3000)
