"""
DQN on Breakout with data-parallel learners: the run of ``breakout_lean_dqn_config.py`` on several processes (ranks),
which collect and store each for itself and make every update together. Written for two; with more, each has the same
numbers.

Run it with ``torchrun --nproc-per-node 2 entry/breakout_dqn_ddp.py``. As DI-engine reads them, numbers are per rank;
the comments give the totals. docs/scale.md has the table.
"""

from easydict import EasyDict

breakout_dqn_ddp_config = dict(
    # (str) Folder for logs, checkpoints and the merged config, below the current one; DI-engine adds the time to the
    # name where it exists already.
    exp_name='experiments/breakout_dqn_ddp',
    env=dict(
        # (int) Environments of each rank: 16 on two.
        collector_env_num=8,
        # (int) Those of the first rank, which evaluates for all; the others wait.
        evaluator_env_num=8,
        # (int) Full games of an evaluation.
        n_evaluator_episode=8,
        # (float) Mean score of an evaluation that ends the training: DQN's after 50M steps (Mnih et al. 2015).
        stop_value=400,
        # Options of breakout_env.BreakoutEnv, for collectors and evaluators alike; the others have the defaults of DQN
        # practice, see docs/options.md.
        frame_stack=4,
        evaluator=dict(
            # (float) A greedy agent meets about 4 different games of Breakout, as no-op starts hardly vary it;
            # stop_value and ckpt_best would then follow the luck of these four.
            random_action_probability=0.01,
        ),
    ),
    policy=dict(
        # (bool) Learn on a GPU for each rank if there are any; DI-engine falls back to the CPU by itself.
        cuda=True,
        # (bool) DI-engine's switch: gradients are averaged over all ranks. It needs the entry, which connects them.
        multi_gpu=True,
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
        # (int) Env steps of random play of each rank before the first update: 20,000 on two.
        random_collect_size=10000,
        learn=dict(
            # (int) Updates after each collection, made by all ranks together: n_sample / update_per_collect = 4 env
            # steps of each rank to an update, 8 on two.
            update_per_collect=8,
            # (int) Transitions that each rank samples for an update: 64 on two. Each is sampled as often as by one
            # process.
            batch_size=32,
            # (float) Of the update that all ranks make together; it is that of one process, not scaled with the batch.
            learning_rate=0.0001,
            # (str) 'bfloat16' computes the layers in half of the bits, much faster where the hardware has it
            # (docs/performance.md); None for float32.
            autocast=None,
            # (int) Updates between two copies of the online into the target network.
            target_update_freq=1000,
            # (bool) Resume the run in exp_name from its last save, or begin it. The same command then starts and
            # resumes a run, as job schedulers need it.
            resume_training=False,
            learner=dict(
                hook=dict(
                    # Of the first rank: progress line, log/progress.jsonl, a watch over memory; max_env_step, of all
                    # ranks, is for percent and time left, and the entry sets it.
                    progress=dict(
                        type='progress', name='progress', position='before_run', ext_args=dict(max_env_step=10000000)
                    ),
                    # All ranks save together every so many seconds, and on SIGTERM or Ctrl-C.
                    resume=dict(type='resume', name='resume', position='before_run', ext_args=dict(save_every_s=900)),
                ),
            ),
        ),
        collect=dict(
            # (int) Env steps of a collection of each rank, 4 in each environment.
            n_sample=32,
        ),
        eval=dict(
            # (int) Updates between evaluations: 100,000 env steps on two ranks.
            evaluator=dict(
                eval_freq=12500,
            ),
        ),
        other=dict(
            eps=dict(
                # Epsilon falls from start to end in a straight line over this many env steps of all ranks.
                type='linear',
                start=1.0,
                end=0.01,
                decay=250000,
            ),
            replay_buffer=dict(
                # (int) Transitions that each rank stores of its own collections: a million on two, about 0.27 GB
                # in all (docs/memory.md).
                replay_buffer_size=500000,
            ),
        ),
    ),
)
breakout_dqn_ddp_config = EasyDict(breakout_dqn_ddp_config)
main_config = breakout_dqn_ddp_config

breakout_dqn_ddp_create_config = dict(
    env=dict(
        type='breakout',
        import_names=['breakout_env'],
    ),
    # For each rank a process for each core, with its share of the environments; worker_num=... for fewer.
    env_manager=dict(type='breakout', import_names=['breakout_env']),
    # DI-engine's DQN with a faster update; its own takes its place with policy=dict(type='dqn'), also on checkpoints.
    policy=dict(type='lean_dqn', import_names=['breakout_env']),
    # Each distinct screen once, compressed.
    replay_buffer=dict(type='frame', import_names=['breakout_env']),
    # DI-engine's collector with n-step returns that do not end with a collection. It also counts full games and their
    # scores: a training episode is one life.
    collector=dict(type='full_games', import_names=['breakout_env']),
    # DI-engine's, with a best score that survives a resumed run.
    evaluator=dict(type='resumable', import_names=['breakout_env']),
)
breakout_dqn_ddp_create_config = EasyDict(breakout_dqn_ddp_create_config)
create_config = breakout_dqn_ddp_create_config

if __name__ == '__main__':
    raise SystemExit('This config is for several processes: torchrun --nproc-per-node 2 entry/breakout_dqn_ddp.py')
