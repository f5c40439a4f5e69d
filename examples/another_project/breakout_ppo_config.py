"""PPO on Breakout: ``GOMP_SPINCOUNT=10000 ding -m serial_onpolicy -c breakout_ppo_config.py -s 0``."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name='experiments/breakout_ppo',
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
            recompute_adv=True,
            action_space='discrete',
            model=dict(
                type='pixel_vac',
                import_names=['breakout_env'],
                obs_shape=[4, 84, 84],
                action_shape=4,
                action_space='discrete',
            ),
            # After Schulman et al. 2017, table 5, without annealing; value coefficient as in OpenAI's code.
            learn=dict(
                epoch_per_collect=3,
                batch_size=256,
                learning_rate=2.5e-4,
                value_weight=0.5,
                entropy_weight=0.01,
                clip_ratio=0.1,
                adv_norm=True,
                value_norm=True,
                ignore_done=False,
                grad_clip_type='clip_norm',
                grad_clip_value=0.5,
            ),
            collect=dict(
                n_sample=1024,
                unroll_len=1,
                discount_factor=0.99,
                gae_lambda=0.95,
            ),
            eval=dict(
                evaluator=dict(
                    eval_freq=2000,
                )
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
        policy=dict(type='ppo'),
    )
)
