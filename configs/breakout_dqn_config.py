"""DQN on Breakout with DI-engine's own policy, subprocess env manager and learner, and the replay buffer ``frame``.

Run it with ``python`` on this file, or by DI-engine's command; the variable helps on busy cores::

    GOMP_SPINCOUNT=10000 ding -m serial -c configs/breakout_dqn_config.py -s 0 --env-step 10000000

``breakout_lean_dqn_config.py`` trains the same faster; ``breakout_dqn_cpu_config.py`` is for a CPU.
"""

from easydict import EasyDict

breakout_dqn_config = dict(
    exp_name='experiments/breakout_dqn',
    env=dict(
        collector_env_num=8,
        evaluator_env_num=8,
        n_evaluator_episode=8,
        stop_value=400,
        frame_stack=4,
        evaluator=dict(
            # (float) Probability of a random action: the games of a greedy agent hardly differ.
            random_action_probability=0.01,
        ),
    ),
    policy=dict(
        # (bool) Whether to learn on a GPU; without one, DI-engine uses the CPU.
        cuda=True,
        priority=False,
        model=dict(
            # (str) DI-engine's DQN for uint8, which it scales on its own device.
            type='pixel_dqn',
            import_names=['breakout_env'],
            obs_shape=[4, 84, 84],
            action_shape=4,
            dueling=True,
            head='paper',
        ),
        nstep=3,
        discount_factor=0.99,
        random_collect_size=20000,
        learn=dict(
            update_per_collect=8,
            batch_size=32,
            learning_rate=0.0001,
            target_update_freq=1000,
            # (bool) Whether to resume the run in exp_name from its last save, if there is one.
            resume_training=False,
            learner=dict(
                hook=dict(
                    # Progress line and log/progress.jsonl; saves of the whole run, replay buffer included.
                    progress=dict(type='progress', name='progress', position='before_run'),
                    resume=dict(type='resume', name='resume', position='before_run'),
                ),
            ),
        ),
        collect=dict(n_sample=32),
        eval=dict(evaluator=dict(eval_freq=25000)),
        other=dict(
            eps=dict(
                type='linear',
                start=1.0,
                end=0.01,
                decay=250000,
            ),
            # (int) Transitions kept; they take about 0.29 GB (docs/memory.md).
            replay_buffer=dict(replay_buffer_size=1000000),
        ),
    ),
)
breakout_dqn_config = EasyDict(breakout_dqn_config)
main_config = breakout_dqn_config

breakout_dqn_create_config = dict(
    env=dict(
        type='breakout',
        import_names=['breakout_env'],
    ),
    env_manager=dict(type='subprocess', shared_memory=True, reset_inplace=True),
    policy=dict(type='dqn'),
    # Stores each distinct screen once, compressed.
    replay_buffer=dict(type='frame', import_names=['breakout_env']),
    # DI-engine's collector, with n-step returns that continue in the next collection.
    collector=dict(type='nstep', import_names=['breakout_env']),
    # DI-engine's evaluator, whose best score is kept when a run is resumed.
    evaluator=dict(type='resumable', import_names=['breakout_env']),
)
breakout_dqn_create_config = EasyDict(breakout_dqn_create_config)
create_config = breakout_dqn_create_config

if __name__ == '__main__':
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=int(1e7))
