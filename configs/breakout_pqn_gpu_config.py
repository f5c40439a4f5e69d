"""
PQN on Breakout for a GPU and 16 CPU cores: 128 environments, Nature's network with LayerNorm, no replay buffer.

Run it with ``breakout train -c configs/breakout_pqn_gpu_config.py``, which collects while it learns, with
``ding -m serial -c configs/breakout_pqn_gpu_config.py -s 0 --env-step 40000000``, or with ``python`` on this file. The
options have comments in ``breakout_pqn_config.py``.
"""

from easydict import EasyDict

breakout_pqn_config = dict(
    exp_name='experiments/breakout_pqn_gpu',
    env=dict(
        # (int) As many as 16 cores step while the GPU answers the previous step.
        collector_env_num=128,
        evaluator_env_num=8,
        n_evaluator_episode=8,
        stop_value=1000,
        frame_stack=4,
        evaluator=dict(random_action_probability=0.01),
    ),
    policy=dict(
        # (bool) Whether to learn on a GPU; without one, DI-engine uses the CPU.
        cuda=True,
        model=dict(
            type='pixel_dqn',
            import_names=['breakout_env'],
            obs_shape=[4, 84, 84],
            action_shape=4,
            dueling=False,
            layer_norm=True,
        ),
        discount_factor=0.99,
        learn=dict(
            # (int) Updates after each collection: 2 passes over the rollout.
            update_per_collect=128,
            batch_size=64,
            learning_rate=0.0001,
            q_lambda=0.9,
            resume_training=False,
            learner=dict(
                hook=dict(
                    # (int) Updates between two checkpoints: 320,000 env steps.
                    save_ckpt_after_iter=10000,
                    log_show_after_iter=2000,
                    progress=dict(
                        type='progress', name='progress', position='before_run', ext_args=dict(max_env_step=40000000)
                    ),
                    resume=dict(type='resume', name='resume', position='before_run', ext_args=dict(save_every_s=300)),
                ),
            ),
        ),
        # (int) Env steps of a rollout, 32 in each environment.
        collect=dict(n_sample=4096),
        # (int) Updates between evaluations: 1.6 million env steps.
        eval=dict(evaluator=dict(eval_freq=50000)),
        other=dict(
            eps=dict(
                type='linear',
                start=1.0,
                end=0.01,
                # (int) Env steps of the decrease.
                decay=500000,
            ),
        ),
    ),
)
breakout_pqn_config = EasyDict(breakout_pqn_config)
main_config = breakout_pqn_config

breakout_pqn_create_config = dict(
    env=dict(
        type='breakout',
        import_names=['breakout_env'],
    ),
    env_manager=dict(type='breakout', import_names=['breakout_env']),
    policy=dict(type='pqn', import_names=['breakout_env']),
    replay_buffer=dict(type='rollout', import_names=['breakout_env']),
    collector=dict(type='rollout', import_names=['breakout_env']),
    evaluator=dict(type='resumable', import_names=['breakout_env']),
)
breakout_pqn_create_config = EasyDict(breakout_pqn_create_config)
create_config = breakout_pqn_create_config

if __name__ == '__main__':
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=int(4e7))
