"""DQN on Breakout for a GPU: double, dueling, 3-step, 8 environments, 10 million env steps, with this package's env
manager and DQN update. ``breakout_dqn_config.py`` trains the same with DI-engine's own.

Run it with ``breakout train -c configs/breakout_lean_dqn_config.py``, with ``python`` on this file, or by DI-engine's
command; the variable helps on busy cores::

    GOMP_SPINCOUNT=10000 ding -m serial -c configs/breakout_lean_dqn_config.py -s 0 --env-step 10000000
"""

from easydict import EasyDict

breakout_lean_dqn_config = dict(
    # (str) Folder for logs, checkpoints and the merged config, below the current one; DI-engine appends the time if the
    # folder exists.
    exp_name='experiments/breakout_lean_dqn',
    env=dict(
        # (int) Environments that collect, and that evaluate.
        collector_env_num=8,
        evaluator_env_num=8,
        # (int) Full games of an evaluation.
        n_evaluator_episode=8,
        # (float) The training ends when an evaluation has this mean score: DQN's after 50M steps (Mnih et al. 2015).
        stop_value=400,
        # (int) Screens in an observation. Like all options of breakout_env.BreakoutEnv that are set here, it applies to
        # collectors and evaluators; the defaults of the others follow DQN practice, see docs/options.md.
        frame_stack=4,
        evaluator=dict(
            # (float) Probability of a random action: the games of a greedy agent hardly differ.
            random_action_probability=0.01,
        ),
    ),
    policy=dict(
        # (bool) Whether to learn on a GPU; without one, DI-engine uses the CPU.
        cuda=True,
        # (bool) Prioritized replay; False samples uniformly.
        priority=False,
        model=dict(
            # (str) DI-engine's DQN with the Nature encoder, for uint8, which it scales on its own device.
            type='pixel_dqn',
            import_names=['breakout_env'],
            # (list) Frames, height and width of an observation.
            obs_shape=[4, 84, 84],
            # (int) Number of actions.
            action_shape=4,
            # (bool) Separate heads for the value of a state and the advantages of actions (Wang et al. 2016).
            dueling=True,
            # (str) 'paper': a ReLU after the linear layer, outputs linear on it (Mnih et al. 2015, Wang et al. 2016).
            head='paper',
        ),
        # (int) Rewards in an n-step return before the value of the next state.
        nstep=3,
        # (float) Discount of the next step's reward.
        discount_factor=0.99,
        # (int) Env steps of random play before the first update.
        random_collect_size=20000,
        learn=dict(
            # (int) Updates after each collection: n_sample / update_per_collect = 4 env steps for each update.
            update_per_collect=8,
            # (int) Transitions of an update.
            batch_size=32,
            # (float) Learning rate of Adam.
            learning_rate=0.0001,
            # (str | None) 'bfloat16' computes the layers with half of the bits, much faster on hardware with
            # bfloat16 (docs/performance.md); None for float32.
            autocast=None,
            # (int) Updates between two copies of the online network's weights into the target network.
            target_update_freq=1000,
            # (bool) Whether to resume the run in exp_name from its last save, if there is one. One command then starts
            # and resumes a run, as job schedulers need it.
            resume_training=False,
            learner=dict(
                hook=dict(
                    # Progress line, log/progress.jsonl, warnings before memory runs out. (int) max_env_step is for the
                    # percentage and the remaining time; `breakout train` sets it.
                    progress=dict(
                        type='progress', name='progress', position='before_run', ext_args=dict(max_env_step=10000000)
                    ),
                    # Saves checkpoint and replay buffer together, every save_every_s (float) seconds and on SIGTERM or
                    # Ctrl-C.
                    resume=dict(type='resume', name='resume', position='before_run', ext_args=dict(save_every_s=900)),
                ),
            ),
        ),
        collect=dict(
            # (int) Env steps of a collection, 4 in each environment.
            n_sample=32,
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
                decay=250000,
            ),
            replay_buffer=dict(
                # (int) Transitions kept; they take about 0.29 GB (docs/memory.md).
                replay_buffer_size=1000000,
            ),
        ),
    ),
)
breakout_lean_dqn_config = EasyDict(breakout_lean_dqn_config)
main_config = breakout_lean_dqn_config

breakout_lean_dqn_create_config = dict(
    env=dict(
        type='breakout',
        import_names=['breakout_env'],
    ),
    # A process for each core, each with several environments. DI-engine's own env manager works as well:
    # env_manager=dict(type='subprocess', shared_memory=True, reset_inplace=True).
    env_manager=dict(type='breakout', import_names=['breakout_env']),
    # DI-engine's DQN with a faster update. Its own works as well, with the same checkpoints: policy=dict(type='dqn').
    policy=dict(type='lean_dqn', import_names=['breakout_env']),
    # Stores each distinct screen once, compressed.
    replay_buffer=dict(type='frame', import_names=['breakout_env']),
    # DI-engine's collector with n-step returns that do not end with a collection. It also counts full games and their
    # scores: a training episode is one life.
    collector=dict(type='nstep', import_names=['breakout_env']),
    # DI-engine's evaluator, whose best score is kept when a run is resumed.
    evaluator=dict(type='resumable', import_names=['breakout_env']),
)
breakout_lean_dqn_create_config = EasyDict(breakout_lean_dqn_create_config)
create_config = breakout_lean_dqn_create_config

if __name__ == '__main__':
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=int(1e7))
