"""PPO on Breakout for a GPU: what ``breakout_ppo_config.py`` says, with Nature's network, four times as many
environments, and minibatches of 1,024.

Run it with ``breakout train`` on a machine with a GPU, with ``python`` on this file, or by DI-engine's command; the
variable helps on busy cores::

    GOMP_SPINCOUNT=10000 ding -m serial -c configs/breakout_ppo_gpu_config.py -s 0 --env-step 30000000
"""

import runpy

from ding.utils import deep_merge_dicts
from easydict import EasyDict

from breakout_env.run.recipes import shipped

for_cpu = runpy.run_path(str(shipped('configs/breakout_ppo_config.py')))

breakout_ppo_gpu_config = dict(
    exp_name='experiments/breakout_ppo_gpu',
    env=dict(collector_env_num=256),
    policy=dict(
        cuda=True,
        # (list) Nature's: an update is hardly slower on a GPU than that of half the width.
        model=dict(encoder_hidden_size_list=[32, 64, 64, 512]),
        learn=dict(
            # 3 passes over the rollout.
            update_per_collect=24,
            batch_size=1024,
            learning_rate=0.0007,
            learner=dict(
                hook=dict(
                    # (int) Updates between two checkpoints: 100,000 env steps.
                    save_ckpt_after_iter=300,
                    progress=dict(ext_args=dict(max_env_step=30000000)),
                ),
            ),
        ),
        # (int) 32 env steps in each environment.
        collect=dict(n_sample=8192),
        # (int) Updates between evaluations: 3 million env steps.
        eval=dict(evaluator=dict(eval_freq=9000)),
    ),
)
breakout_ppo_gpu_config = EasyDict(deep_merge_dicts(for_cpu['main_config'], EasyDict(breakout_ppo_gpu_config)))
main_config = breakout_ppo_gpu_config

breakout_ppo_gpu_create_config = for_cpu['create_config']
create_config = breakout_ppo_gpu_create_config

if __name__ == '__main__':
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=int(3e7))
