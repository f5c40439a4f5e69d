"""DI-engine's R2D2 on Breakout, with slices of episodes from TorchRL's replay buffer: pip install
'torchrl>=0.14,<0.15'.

Run it with ``python`` on this file, or by DI-engine's command; the variable helps on busy cores::

    GOMP_SPINCOUNT=10000 ding -m serial -c configs/breakout_r2d2_config.py -s 0 --env-step 10000000

An update processes 32 x 60 screens: use a GPU.
"""

from easydict import EasyDict

collector_env_num, evaluator_env_num = 8, 8
# (int) Steps of a slice that only update the hidden state, and steps that are learned from; the last `nstep` of these
# only serve as targets (Kapturowski et al. 2019: 40 and 80).
burnin_step, learn_unroll_len = 20, 40

breakout_r2d2_config = dict(
    exp_name='experiments/breakout_r2d2',
    env=dict(
        collector_env_num=collector_env_num,
        evaluator_env_num=evaluator_env_num,
        # (int) Full games of an evaluation.
        n_evaluator_episode=8,
        # (float) The training ends when an evaluation has this mean score: DQN's after 50M steps (Mnih et al. 2015).
        stop_value=400,
        # (int) Screens in an observation.
        frame_stack=4,
        evaluator=dict(
            # (float) Probability of a random action, so that the games of a greedy agent differ.
            random_action_probability=0.01,
        ),
    ),
    policy=dict(
        # (bool) Whether to learn on a GPU; without one, DI-engine uses the CPU.
        cuda=True,
        model=dict(
            # (str) DI-engine's DRQN, an LSTM after the Nature encoder, for uint8, which it scales on its own device.
            type='pixel_drqn',
            import_names=['breakout_env'],
            # (list) Frames, height and width of an observation.
            obs_shape=[4, 84, 84],
            # (int) Number of actions.
            action_shape=4,
        ),
        burnin_step=burnin_step,
        learn_unroll_len=learn_unroll_len,
        # (int) Rewards in an n-step return before the value of the next state.
        nstep=5,
        # (float) Discount of the next step's reward.
        discount_factor=0.997,
        # (int) Env steps of random play (epsilon is 1) before the first update.
        random_collect_size=20000,
        learn=dict(
            # (int) Updates after each collection: n_sample / update_per_collect = 64 env steps for each update. One
            # learns from 32 x 35 steps, so every step is learned from about 18 times.
            update_per_collect=4,
            # (int) Slices of an update.
            batch_size=32,
            # (float) Learning rate of Adam.
            learning_rate=0.0001,
            # (float) Share of the online network in the target network's moving average, at each update.
            target_update_theta=0.005,
            # (bool) Whether to resume the run in exp_name from its last save, if there is one.
            resume_training=False,
            learner=dict(
                hook=dict(
                    progress=dict(type='progress', name='progress', position='before_run'),
                    # Saves checkpoint and replay buffer together, every save_every_s (float) seconds and on SIGTERM or
                    # Ctrl-C.
                    resume=dict(type='resume', name='resume', position='before_run', ext_args=dict(save_every_s=900)),
                ),
            ),
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
            # (str, float, float, int) Epsilon decreases linearly from start to end over `decay` env steps.
            eps=dict(type='linear', start=1.0, end=0.01, decay=250000),
            replay_buffer=dict(
                # (int) Transitions kept. One takes 32 kB, whole observations and a hidden state, so these take 3.2 GB,
                # and each save as much on the disk; storage='memmap' keeps more of them in files.
                replay_buffer_size=100000,
                # (str) What is sampled: slices of episodes.
                sampler='slice',
                # (int) Steps of a slice.
                slice_len=burnin_step + learn_unroll_len,
                # (bool) Copy the next batch in a thread while the learner computes.
                prefetch=True,
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
    # Adds the ids of episode and step to transitions; the buffer composes slices by them.
    collector=dict(type='sample_with_ids', import_names=['breakout_env']),
    replay_buffer=dict(type='torchrl', import_names=['breakout_env']),
    # DI-engine's evaluator, whose best score is kept when a run is resumed.
    evaluator=dict(type='resumable', import_names=['breakout_env']),
)
breakout_r2d2_create_config = EasyDict(breakout_r2d2_create_config)
create_config = breakout_r2d2_create_config

if __name__ == '__main__':
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=int(1e7))
