"""Changes that make a config small, for ``helpers.runs.shortened``."""

SMALL_R2D2 = (
    (r'frame_stack=4,', 'frame_stack=4, max_episode_frames=400,'),
    (r'action_shape=4,', 'action_shape=4, encoder_hidden_size_list=[8, 8, 8, 16],'),
    (r'evaluator_env_num = 8, 8', 'evaluator_env_num = 2, 2'),
    (r'n_evaluator_episode=8', 'n_evaluator_episode=2'),
    (r'burnin_step, learn_unroll_len = 20, 40', 'burnin_step, learn_unroll_len = 4, 16'),
    (r'random_collect_size=\d+', 'random_collect_size=200'),
    (r'batch_size=\d+', 'batch_size=4'),
    (r'n_sample=\d+', 'n_sample=64'),
    (r'replay_buffer_size=\d+', 'replay_buffer_size=2000'),
)
