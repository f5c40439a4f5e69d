"""
DQN on Breakout for two CPU cores: double, dueling, 3-step, a small network. Past 100 points within a million env steps,
an hour and a quarter on one thread; docs/training.md has the curves of the run that was made with it.

Run it with ``breakout train``, with ``ding -m serial -c configs/breakout_dqn_cpu_config.py -s 0 --env-step 1000000``,
or with ``python`` on this file.
"""

from easydict import EasyDict

breakout_dqn_config = dict(
    # (str) Folder for logs, checkpoints and the merged config, below the current one; DI-engine adds the time to the
    # name where it exists already.
    exp_name='experiments/breakout_dqn_cpu',
    env=dict(
        collector_env_num=8,
        evaluator_env_num=8,
        # (int) Whole games an evaluation plays.
        n_evaluator_episode=8,
        # (float) Mean score of an evaluation that ends the training; out of reach, so that the budget ends it.
        stop_value=1000,
        frame_stack=4,
        evaluator=dict(
            # (float) A greedy agent meets at most 4 different games of Breakout, as no-op starts hardly vary it;
            # ckpt_best would then follow the luck of these four.
            random_action_probability=0.01,
        ),
    ),
    policy=dict(
        cuda=False,
        # (bool) Uniform replay.
        priority=False,
        model=dict(
            # (str) DI-engine's DQN; takes uint8 and scales it.
            type='pixel_dqn',
            import_names=['breakout_env'],
            obs_shape=[4, 84, 84],
            action_shape=4,
            # (list) Channels of the three convolutions, width of the layer behind them: half of Nature's, an update
            # in less than half of the time.
            encoder_hidden_size_list=[16, 32, 32, 256],
            dueling=True,
        ),
        # (int) Steps of the return before the value of a state takes over.
        nstep=3,
        discount_factor=0.99,
        # (int) Env steps of random play before the first update.
        random_collect_size=10000,
        learn=dict(
            # (int) Updates after each collection: n_sample / update_per_collect = 4 env steps an update.
            update_per_collect=64,
            batch_size=32,
            learning_rate=0.00025,
            # (int) Updates between two copies of the online into the target network.
            target_update_freq=1000,
            # (bool) Go on with the run in exp_name where it was saved last, or begin it.
            resume_training=False,
            learner=dict(
                hook=dict(
                    # (int) Updates between two checkpoints: 10,000 env steps.
                    save_ckpt_after_iter=2500,
                    log_show_after_iter=500,
                    # Progress line, log/progress.jsonl, a watch over memory; max_env_step is for percent and time left,
                    # and `breakout train` sets it.
                    progress=dict(
                        type='progress', name='progress', position='before_run', ext_args=dict(max_env_step=1000000)
                    ),
                    # Saves checkpoint and replay buffer together every so many seconds, and on SIGTERM or Ctrl-C.
                    resume=dict(type='resume', name='resume', position='before_run', ext_args=dict(save_every_s=900)),
                ),
            ),
        ),
        collect=dict(
            # (int) Env steps of a collection, 32 in each environment. DI-engine cuts the n-step returns at the end of
            # a piece of play, so pieces are to be much longer than nstep.
            n_sample=256,
        ),
        eval=dict(
            # (int) Updates between evaluations: 100,000 env steps.
            evaluator=dict(
                eval_freq=25000,
            ),
        ),
        other=dict(
            eps=dict(
                # Epsilon falls from start to end in a straight line over this many env steps.
                type='linear',
                start=1.0,
                end=0.01,
                decay=100000,
            ),
            replay_buffer=dict(
                # (int) Transitions kept, 0.15 to 0.27 GB (docs/memory.md).
                replay_buffer_size=1000000,
            ),
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
    env_manager=dict(type='breakout', import_names=['breakout_env']),
    policy=dict(type='lean_dqn', import_names=['breakout_env']),
    replay_buffer=dict(type='frame', import_names=['breakout_env']),
    # DI-engine's, which also counts whole games and their points: an episode of training is one life.
    collector=dict(type='full_games', import_names=['breakout_env']),
    # DI-engine's, with a best score that survives a resumed run.
    evaluator=dict(type='resumable', import_names=['breakout_env']),
)
breakout_dqn_create_config = EasyDict(breakout_dqn_create_config)
create_config = breakout_dqn_create_config

if __name__ == '__main__':
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=int(1e6))
