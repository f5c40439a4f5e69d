"""Rainbow on Breakout: ``GOMP_SPINCOUNT=10000 ding -m serial -c breakout_rainbow_config.py -s 0``."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name='experiments/breakout_rainbow',
        env=dict(
            collector_env_num=8,
            evaluator_env_num=8,
            n_evaluator_episode=8,
            stop_value=400,
            evaluator=dict(
                random_action_probability=0.01,
            ),
        ),
        policy=dict(
            cuda=True,
            priority=True,
            model=dict(
                type='pixel_rainbowdqn',
                import_names=['breakout_env'],
                obs_shape=[4, 84, 84],
                action_shape=4,
                v_min=-10,
                v_max=10,
                n_atom=51,
            ),
            nstep=3,
            discount_factor=0.99,
            learn=dict(
                update_per_collect=8,
                batch_size=32,
                learning_rate=0.0001,
                target_update_freq=1000,
                # saves the run, also on SIGTERM
                learner=dict(hook=dict(resume=dict(type='resume', name='resume', position='before_run'))),
            ),
            collect=dict(
                n_sample=32,
            ),
            eval=dict(
                evaluator=dict(
                    eval_freq=25000,
                )
            ),
            other=dict(
                eps=dict(type='linear', start=1.0, end=0.01, decay=250000),
                replay_buffer=dict(
                    replay_buffer_size=1000000,
                ),
            ),
        ),
    )
)
create_config = EasyDict(
    dict(
        env=dict(
            type='breakout',
            import_names=['breakout_env'],
        ),
        env_manager=dict(type='subprocess', reset_inplace=True),
        policy=dict(type='rainbow'),
        replay_buffer=dict(type='frame', import_names=['breakout_env']),
        # DI-engine's collector with n-step returns that do not end with a collection.
        collector=dict(type='nstep', import_names=['breakout_env']),
    )
)
