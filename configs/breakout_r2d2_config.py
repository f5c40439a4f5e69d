"""
R2D2 on Breakout: DI-engine's, with slices of episodes from TorchRL's replay memory.

Needs ``pip install 'breakout-env[torchrl]'``. Run it with ``ding -m serial -c configs/breakout_r2d2_config.py -s 0
--env-step 10000000`` or ``python`` on this file. An update goes through 32 x 60 screens: a GPU is wanted.
"""

from easydict import EasyDict

collector_env_num, evaluator_env_num = 8, 8
# (int) Steps of a slice that only bring the hidden state up to date, and steps that are learned from, of which the last
# `nstep` serve as targets (Kapturowski et al. 2019: 40 and 80).
burnin_step, learn_unroll_len = 20, 40

breakout_r2d2_config = dict(
    exp_name='experiments/breakout_r2d2',
    env=dict(
        collector_env_num=collector_env_num,
        evaluator_env_num=evaluator_env_num,
        n_evaluator_episode=8,
        # (float) Mean score of an evaluation that ends the training: DQN's after 50M steps (Mnih et al. 2015).
        stop_value=400,
        frame_stack=4,
        evaluator=dict(
            random_action_probability=0.01,
        ),
    ),
    policy=dict(
        # (bool) Learn on a GPU if there is one; DI-engine falls back to the CPU by itself.
        cuda=True,
        model=dict(
            # (str) DI-engine's DRQN, an LSTM behind the Nature encoder; takes uint8, scales it on the learner's device.
            type='pixel_drqn',
            import_names=['breakout_env'],
            obs_shape=[4, 84, 84],
            action_shape=4,
        ),
        burnin_step=burnin_step,
        learn_unroll_len=learn_unroll_len,
        nstep=5,
        discount_factor=0.997,
        # (int) Env steps of play at random (epsilon is 1 then) before the first update.
        random_collect_size=20000,
        learn=dict(
            # (int) Updates after each collection: n_sample / update_per_collect = 64 env steps an update. Each learns
            # from 32 x 35 steps, so every step is learned from about 18 times.
            update_per_collect=4,
            batch_size=32,
            learning_rate=0.0001,
            # (float) Share of the online network that enters the target network with each update.
            target_update_theta=0.005,
        ),
        collect=dict(
            # (int) Env steps of a collection, 32 in each environment.
            n_sample=256,
            env_num=collector_env_num,
        ),
        eval=dict(
            env_num=evaluator_env_num,
            evaluator=dict(
                # (int) Updates between evaluations: 128,000 env steps.
                eval_freq=2000,
            ),
        ),
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.01, decay=250000),
            # 32 kB a transition, screens and hidden state: 100,000 are 3.3 GB.
            replay_buffer=dict(
                replay_buffer_size=100000,
                storage='tensor',
                sampler='slice',
                slice_len=burnin_step + learn_unroll_len,
            ),
        ),
    ),
)
breakout_r2d2_config = EasyDict(breakout_r2d2_config)
main_config = breakout_r2d2_config

breakout_r2d2_create_config = dict(
    env=dict(
        type='breakout',
        import_names=['breakout_env'],
    ),
    env_manager=dict(type='subprocess', shared_memory=True, reset_inplace=True),
    policy=dict(type='r2d2_slices', import_names=['breakout_env']),
    # Transitions with the ids of their episode and step, which slices are put together by.
    collector=dict(type='sample_with_ids', import_names=['breakout_env']),
    replay_buffer=dict(type='torchrl', import_names=['breakout_env']),
)
breakout_r2d2_create_config = EasyDict(breakout_r2d2_create_config)
create_config = breakout_r2d2_create_config

if __name__ == '__main__':
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=int(1e7))
