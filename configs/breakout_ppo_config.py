"""PPO on Breakout for a CPU: 64 environments, a small mirror-equivariant network, no replay buffer.

Run it with ``breakout train`` on a machine without a GPU, with ``python`` on this file, or by DI-engine's command; the
variable helps on busy cores::

    GOMP_SPINCOUNT=10000 ding -m serial -c configs/breakout_ppo_config.py -s 0 --env-step 5000000
"""

from easydict import EasyDict

breakout_ppo_config = dict(
    # (str) Folder for logs, checkpoints and the merged config, below the current one; DI-engine appends the time if the
    # folder exists.
    exp_name='experiments/breakout_ppo',
    env=dict(
        # (int) Environments that collect, and that evaluate.
        collector_env_num=64,
        evaluator_env_num=8,
        # (int) Full games of an evaluation.
        n_evaluator_episode=8,
        # (float) The training ends when an evaluation has this mean score; out of reach: the budget ends it.
        stop_value=1000,
        # (int) Screens in an observation.
        frame_stack=4,
        # (float) Share of the training games that begin where earlier ones had cleared most of a wall.
        late_start_probability=0.5,
        # (int) Niceness of the environments' processes: the learner is one thread, they leave it a core.
        manager=dict(nice=10),
        evaluator=dict(
            # (float) Probability of a random action: the games of a greedy agent hardly differ.
            random_action_probability=0.01,
        ),
    ),
    policy=dict(
        # (bool) Whether to learn on a GPU.
        cuda=False,
        model=dict(
            # (str) DI-engine's DQN for uint8, which it scales itself, with a linear layer for values beside its head.
            type='pixel_actor_critic',
            import_names=['breakout_env'],
            # (list) Frames, height and width of an observation.
            obs_shape=[4, 84, 84],
            # (int) Number of actions.
            action_shape=4,
            # (list) Channels of the three convolutions and width of the linear layer: half of Nature's, for updates in
            # less than half of the time.
            encoder_hidden_size_list=[16, 32, 32, 256],
            # (str) 'paper': a ReLU after the linear layer, outputs linear on it (Mnih et al. 2015, Wang et al. 2016).
            head='paper',
            # (list) First and last row of the screen that the network looks at: above is the score, below no change.
            rows=[12, 79],
            # (list) First and last column likewise: the walls are outside.
            columns=[4, 79],
        ),
        # (float) Discount of the next step's reward at the start.
        discount_factor=0.99,
        learn=dict(
            # (int) Updates after each collection: 3 passes over the rollout.
            update_per_collect=48,
            # (int) Transitions of an update.
            batch_size=256,
            # (float) Learning rate of Adam at the start, and at the end of the budget.
            learning_rate=0.0005,
            lr_end=0.00005,
            # (bool) Whether learning rate and entropy coefficient fall, and the discount rises, over the run's budget.
            anneal=True,
            # (float) The discount at the end of the budget: a wall's last bricks are some hundred steps apart.
            discount_end=0.998,
            # (bool) Whether the critic learns normalised returns, which grow with the discount.
            normalize_returns=True,
            # (bool) Whether the network gives mirrored actions for mirrored screens.
            mirror=True,
            # (float) GAE lambda: 0 is the one-step TD error, 1 is Monte Carlo.
            gae_lambda=0.95,
            # (float) PPO clip range epsilon: the probability ratio is clipped to [1 - epsilon, 1 + epsilon].
            clip_ratio=0.1,
            # (float) Value coefficient: weight of the value's mean squared error in the loss.
            value_weight=0.25,
            # (float) Entropy coefficient: weight of the policy's entropy in the loss, which keeps it exploring; at the
            # start, and at the end of the budget.
            entropy_weight=0.01,
            entropy_end=0.002,
            # (bool) Whether to resume the run in exp_name from its last save, if there is one.
            resume_training=False,
            learner=dict(
                hook=dict(
                    # (int) Updates between two checkpoints: 100,000 env steps.
                    save_ckpt_after_iter=1200,
                    # (int) Updates between two entries in the log.
                    log_show_after_iter=500,
                    # Progress line, log/progress.jsonl, warnings before memory runs out. (int) max_env_step is for the
                    # percentage and the remaining time; `breakout train` sets it.
                    progress=dict(
                        type='progress',
                        name='progress',
                        position='before_run',
                        ext_args=dict(max_env_step=5000000),
                    ),
                    # Saves the run every save_every_s (float) seconds and on SIGTERM or Ctrl-C.
                    resume=dict(type='resume', name='resume', position='before_run', ext_args=dict(save_every_s=900)),
                ),
            ),
        ),
        collect=dict(
            # (int) Env steps of a rollout, 64 in each environment.
            n_sample=4096,
        ),
        eval=dict(
            evaluator=dict(
                # (int) Updates between evaluations: 1 million env steps.
                eval_freq=12000,
            ),
        ),
    ),
)
breakout_ppo_config = EasyDict(breakout_ppo_config)
main_config = breakout_ppo_config

breakout_ppo_create_config = dict(
    env=dict(
        type='breakout',
        import_names=['breakout_env'],
    ),
    env_manager=dict(type='breakout', import_names=['breakout_env']),
    policy=dict(type='lean_ppo', import_names=['breakout_env']),
    replay_buffer=dict(type='rollout', import_names=['breakout_env']),
    # Steps all environments at once, and counts full games and their scores: a training episode is one life.
    collector=dict(type='rollout', import_names=['breakout_env']),
    # DI-engine's evaluator, whose best score is kept when a run is resumed.
    evaluator=dict(type='resumable', import_names=['breakout_env']),
)
breakout_ppo_create_config = EasyDict(breakout_ppo_create_config)
create_config = breakout_ppo_create_config

if __name__ == '__main__':
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=int(5e6))
