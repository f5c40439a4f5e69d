"""DQN with own parts: ``breakout train -c config.py`` or ``PYTHONPATH=. ding -m serial -c config.py``."""

from easydict import EasyDict

OURS = dict(import_names=['breakout_env'])
MINE = dict(import_names=['my_parts'])

main_config = EasyDict(
    exp_name='experiments/my_parts',
    env=dict(collector_env_num=8, evaluator_env_num=8, n_evaluator_episode=8, stop_value=400),
    policy=dict(
        cuda=False,
        priority=False,
        model=dict(type='my_network', obs_shape=[4, 84, 84], action_shape=4, width=128, **MINE),
        nstep=3,
        discount_factor=0.99,
        random_collect_size=5000,
        learn=dict(
            update_per_collect=8,
            batch_size=32,
            learning_rate=0.0001,
            target_update_freq=1000,
            learner=dict(hook=dict(resume=dict(type='resume', name='resume', position='before_run'))),
        ),
        collect=dict(n_sample=32),
        eval=dict(evaluator=dict(eval_freq=5000)),
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.05, decay=100000),
            replay_buffer=dict(replay_buffer_size=100000),
        ),
    ),
)
create_config = EasyDict(
    env=dict(type='my_breakout', **MINE),
    env_manager=dict(type='breakout', **OURS),
    policy=dict(type='dqn'),
    replay_buffer=dict(type='frame', **OURS),
    collector=dict(type='nstep', **OURS),
    evaluator=dict(type='resumable', **OURS),
)
