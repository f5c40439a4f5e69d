"""DQN on Breakout for two CPU cores: double, dueling, 3-step, a small network.

Run it with ``breakout train -c configs/breakout_dqn_cpu_config.py``, with ``python`` on this file, or by DI-engine's
command; the variable helps on busy cores::

    GOMP_SPINCOUNT=10000 ding -m serial -c configs/breakout_dqn_cpu_config.py -s 0 --env-step 1000000

Without ``-c``, ``breakout train`` takes ``breakout_ppo_config.py`` on a CPU.
"""

from easydict import EasyDict

breakout_dqn_config = dict(
    # (str) Folder for logs, checkpoints and the merged config, below the current one; DI-engine appends the time if the
    # folder exists.
    exp_name='experiments/breakout_dqn_cpu',
    env=dict(
        # (int) Environments that collect, and that evaluate.
        collector_env_num=8,
        evaluator_env_num=8,
        # (int) Full games of an evaluation.
        n_evaluator_episode=8,
        # (float) The training ends when an evaluation has this mean score; out of reach: the budget ends it.
        stop_value=1000,
        # (int) Screens in an observation.
        frame_stack=4,
        evaluator=dict(
            # (float) Probability of a random action: the games of a greedy agent hardly differ.
            random_action_probability=0.01,
        ),
    ),
    policy=dict(
        # (bool) Whether to learn on a GPU.
        cuda=False,
        # (bool) Prioritized replay; False samples uniformly.
        priority=False,
        model=dict(
            # (str) DI-engine's DQN for uint8, which it scales itself.
            type='pixel_dqn',
            import_names=['breakout_env'],
            # (list) Frames, height and width of an observation.
            obs_shape=[4, 84, 84],
            # (int) Number of actions.
            action_shape=4,
            # (list) Channels of the three convolutions and width of the linear layer: half of Nature's, for updates in
            # less than half of the time.
            encoder_hidden_size_list=[16, 32, 32, 256],
            # (bool) Separate heads for the value of a state and the advantages of actions (Wang et al. 2016).
            dueling=True,
            # (str) 'paper': a ReLU after the linear layer, outputs linear on it (Mnih et al. 2015, Wang et al. 2016).
            head='paper',
            # (list) First and last row of the screen that the network looks at: above is the score, below no change.
            rows=[12, 79],
        ),
        # (int) Rewards in an n-step return before the value of the next state.
        nstep=3,
        # (float) Discount of the next step's reward.
        discount_factor=0.99,
        # (int) Env steps of random play before the first update.
        random_collect_size=10000,
        learn=dict(
            # (int) Updates after each collection: n_sample / update_per_collect = 4 env steps for each update.
            update_per_collect=64,
            # (int) Transitions of an update.
            batch_size=32,
            # (float) Learning rate of Adam.
            learning_rate=0.00025,
            # (int) Updates between two copies of the online network's weights into the target network.
            target_update_freq=1000,
            # (bool) Whether to resume the run in exp_name from its last save, if there is one.
            resume_training=False,
            learner=dict(
                hook=dict(
                    # (int) Updates between two checkpoints: 10,000 env steps.
                    save_ckpt_after_iter=2500,
                    # (int) Updates between two entries in the log.
                    log_show_after_iter=500,
                    # Progress line, log/progress.jsonl, warnings before memory runs out. (int) max_env_step is for the
                    # percentage and the remaining time; `breakout train` sets it.
                    progress=dict(
                        type='progress', name='progress', position='before_run', ext_args=dict(max_env_step=1000000)
                    ),
                    # Saves checkpoint and replay buffer together, every save_every_s (float) seconds and on SIGTERM or
                    # Ctrl-C.
                    resume=dict(type='resume', name='resume', position='before_run', ext_args=dict(save_every_s=900)),
                ),
            ),
        ),
        collect=dict(
            # (int) Env steps of a collection, 32 in each environment.
            n_sample=256,
        ),
        eval=dict(
            evaluator=dict(
                # (int) Updates between evaluations: 100,000 env steps.
                eval_freq=25000,
            ),
        ),
        other=dict(
            eps=dict(
                # (str) Epsilon decreases linearly from start to end.
                type='linear',
                # (float) Epsilon at the first env step.
                start=1.0,
                # (float) Epsilon from env step `decay` on.
                end=0.01,
                # (int) Env steps of the decrease.
                decay=100000,
            ),
            replay_buffer=dict(
                # (int) Transitions kept; they take about 0.29 GB (docs/memory.md).
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
    # DI-engine's collector with n-step returns that do not end with a collection. It also counts full games and their
    # scores: a training episode is one life.
    collector=dict(type='nstep', import_names=['breakout_env']),
    # DI-engine's evaluator, whose best score is kept when a run is resumed.
    evaluator=dict(type='resumable', import_names=['breakout_env']),
)
breakout_dqn_create_config = EasyDict(breakout_dqn_create_config)
create_config = breakout_dqn_create_config

if __name__ == '__main__':
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=int(1e6))
