"""
DQN on Breakout: double, dueling, 3-step, 8 environments, 10 million env steps.

Run it with ``ding -m serial -c configs/breakout_dqn_config.py -s 0 --env-step 10000000`` or ``python`` on this file;
``make train`` trains the same with a progress line and a safe stop.
"""

from easydict import EasyDict

breakout_dqn_config = dict(
    # (str) Folder for logs, checkpoints and the merged config, below the current one; DI-engine adds the time to the
    # name where it exists already.
    exp_name='experiments/breakout_dqn',
    env=dict(
        collector_env_num=8,
        evaluator_env_num=8,
        # (int) Whole games an evaluation plays.
        n_evaluator_episode=8,
        # (float) Mean score of an evaluation that ends the training: DQN's after 50M steps (Mnih et al. 2015).
        stop_value=400,
        # Options of breakout_env.BreakoutEnv that stand here hold for collectors and evaluators alike; what is not
        # named follows DQN practice, see the table in the README.
        frame_stack=4,
        evaluator=dict(
            # (float) A greedy agent meets at most 4 different games of Breakout, as no-op starts hardly vary it;
            # stop_value and ckpt_best would then follow the luck of these four.
            random_action_probability=0.01,
        ),
    ),
    policy=dict(
        # (bool) Learn on a GPU if there is one; DI-engine falls back to the CPU by itself.
        cuda=True,
        # (bool) Uniform replay.
        priority=False,
        model=dict(
            # (str) DI-engine's DQN with the Nature encoder; takes uint8 and scales it on the learner's device.
            type='pixel_dqn',
            import_names=['breakout_env'],
            obs_shape=[4, 84, 84],
            action_shape=4,
            dueling=True,
        ),
        # (int) Steps of the return before the value of a state takes over.
        nstep=3,
        discount_factor=0.99,
        # (int) Env steps of random play before the first update.
        random_collect_size=20000,
        learn=dict(
            # (int) Updates after each collection: n_sample / update_per_collect = 4 env steps an update.
            update_per_collect=8,
            batch_size=32,
            learning_rate=0.0001,
            # (str) 'bfloat16' computes the layers in half of the bits, much faster where the hardware has it
            # (docs/performance.md); None for float32.
            autocast=None,
            # (int) Updates between two copies of the online into the target network.
            target_update_freq=1000,
            # (bool) Go on with the run in exp_name where it was saved last, or begin it. The same command then serves
            # to start a run and to continue it, as job schedulers want it.
            resume_training=False,
            learner=dict(
                hook=dict(
                    # Progress line, log/progress.jsonl, a watch over memory; max_env_step is for percent and time left,
                    # and `breakout train` sets it.
                    progress=dict(
                        type='progress', name='progress', position='before_run', ext_args=dict(max_env_step=10000000)
                    ),
                    # Saves checkpoint and replay buffer together every so many seconds, and on SIGTERM or Ctrl-C.
                    resume=dict(type='resume', name='resume', position='before_run', ext_args=dict(save_every_s=900)),
                ),
            ),
        ),
        collect=dict(
            # (int) Env steps of a collection, 4 in each environment.
            n_sample=32,
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
                decay=250000,
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
    # A process for each core, each with its share of the environments. DI-engine's own takes its place with
    # env_manager=dict(type='subprocess', shared_memory=True, reset_inplace=True).
    env_manager=dict(type='breakout', import_names=['breakout_env']),
    # DI-engine's DQN with a faster update; its own takes its place with policy=dict(type='dqn'), also on checkpoints.
    policy=dict(type='lean_dqn', import_names=['breakout_env']),
    # Each distinct screen once, compressed.
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

    serial_pipeline((main_config, create_config), seed=0, max_env_step=int(1e7))
