"""
DQN on Breakout as a pipeline of DI-engine's task engine: ``task.use`` adds a function to the loop. The environment, its
manager, the model and the replay buffer are this package's, all else is DI-engine's::

    python task_pipeline.py

The same with a process each for learner, evaluator and collector, which exchange what they make by DI-engine's stock
distributed middleware::

    ditask --package . --main task_pipeline.main --parallel-workers 3 --topology mesh --address 127.0.0.1

What DI-engine 0.5.3 does when a process dies: a collector or an evaluator that is killed is not restarted, and the
learner waits for its messages for ever; a killed learner leaves the others waiting. Messages are pickles on an open
port without authentication: keep it to loopback or a trusted network. ``breakout train --collectors`` (Ray) restarts
what dies, saves the run, and authenticates.
"""

import os
from functools import partial

from breakout_env import TaskFrameBuffer  # first: it keeps what DI-engine prints from the screen

# isort: split
from ding.config import compile_config
from ding.envs import create_env_manager, get_vec_env_setting
from ding.framework import ding_init, task
from ding.framework.context import OnlineRLContext
from ding.framework.middleware import (
    CkptSaver,
    ContextExchanger,
    ModelExchanger,
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    interaction_evaluator,
    online_logger,
    termination_checker,
)
from ding.policy import DQNPolicy
from ding.utils import set_pkg_seed
from ditk import logging
from easydict import EasyDict

ENV_STEPS = int(os.environ.get('BREAKOUT_ENV_STEPS', 20_000))
main_config = EasyDict(
    exp_name='experiments/task_pipeline',
    env=dict(collector_env_num=4, evaluator_env_num=2, n_evaluator_episode=2, stop_value=400),
    policy=dict(
        cuda=False,
        model=dict(type='pixel_dqn', import_names=['breakout_env'], obs_shape=[4, 84, 84], action_shape=4),
        nstep=1,  # the task pipeline pushes single steps
        discount_factor=0.99,
        learn=dict(update_per_collect=4, batch_size=32, learning_rate=0.0001, target_update_freq=200),
        collect=dict(n_sample=32),
        eval=dict(evaluator=dict(eval_freq=500)),
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.05, decay=5000), replay_buffer=dict(replay_buffer_size=8000)
        ),
    ),
)
create_config = EasyDict(
    env=dict(type='breakout', import_names=['breakout_env']),
    env_manager=dict(type='breakout_v2', import_names=['breakout_env']),
    policy=dict(type='dqn'),
)


def main() -> None:
    """What each process runs; ``ditask`` calls it in all of them."""
    logging.getLogger().setLevel(logging.INFO)  # the log goes to the screen
    node = task.router.node_id or 0
    cfg = compile_config(main_config, create_cfg=create_config, auto=True, seed=0, save_cfg=node == 0)
    ding_init(cfg)
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        if task.router.is_active:  # under ditask: a role to each process
            roles = task.role.LEARNER, task.role.EVALUATOR, task.role.COLLECTOR
            task.add_role(roles[min(node, 2)])
            task.use(ContextExchanger(skip_n_iter=1))
        set_pkg_seed(cfg.seed + node, use_cuda=cfg.policy.cuda)
        env_class, collector_cfgs, evaluator_cfgs = get_vec_env_setting(cfg.env)
        collector_env, evaluator_env = (
            create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in cfgs])
            for cfgs in (collector_cfgs, evaluator_cfgs)
        )
        policy = DQNPolicy(cfg.policy)
        buffer = TaskFrameBuffer(size=cfg.policy.other.replay_buffer.replay_buffer_size)
        if task.router.is_active:
            task.use(ModelExchanger(policy._model))
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(eps_greedy_handler(cfg))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(data_pusher(cfg, buffer))
        task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))
        task.use(online_logger(train_show_freq=100))
        task.use(termination_checker(max_env_step=ENV_STEPS))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=1000))
        task.run()
        collector_env.close()
        evaluator_env.close()
        buffer.close()


if __name__ == '__main__':
    main()
