"""
The shortest run with all steps: ``make demo`` trains with it, evaluates and records a game.

``ding -m serial -c configs/breakout_dqn_demo_config.py -s 0 --env-step 8000``, about a minute on two CPU cores. The
agent hardly learns anything in it: use ``breakout_dqn_config.py``, whose comments explain the options, for a real one.
"""

from easydict import EasyDict

breakout_dqn_demo_config = dict(
    exp_name='experiments/breakout_dqn_demo',
    env=dict(
        collector_env_num=4,
        evaluator_env_num=4,
        n_evaluator_episode=4,
        stop_value=400,
        evaluator=dict(
            random_action_probability=0.01,
        ),
    ),
    policy=dict(
        cuda=True,
        model=dict(
            type='pixel_dqn',
            import_names=['breakout_env'],
            obs_shape=[4, 84, 84],
            action_shape=4,
        ),
        nstep=3,
        discount_factor=0.99,
        random_collect_size=1000,
        learn=dict(
            update_per_collect=4,
            batch_size=32,
            learning_rate=0.0001,
            target_update_freq=200,
        ),
        collect=dict(
            n_sample=32,
        ),
        eval=dict(
            evaluator=dict(
                eval_freq=500,
            )
        ),
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.05, decay=5000),
            replay_buffer=dict(
                replay_buffer_size=8000,
            ),
        ),
    ),
)
breakout_dqn_demo_config = EasyDict(breakout_dqn_demo_config)
main_config = breakout_dqn_demo_config

breakout_dqn_demo_create_config = dict(
    env=dict(
        type='breakout',
        import_names=['breakout_env'],
    ),
    env_manager=dict(type='subprocess', shared_memory=True, reset_inplace=True),
    policy=dict(type='dqn'),
    replay_buffer=dict(type='frame', import_names=['breakout_env']),
    collector=dict(type='full_games', import_names=['breakout_env']),
)
breakout_dqn_demo_create_config = EasyDict(breakout_dqn_demo_create_config)
create_config = breakout_dqn_demo_create_config

if __name__ == '__main__':
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=8000)
