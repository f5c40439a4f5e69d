"""An evaluator's process: plays whole games with the weights the learner asks about, with the config's evaluator."""

from functools import partial
from typing import Any, Dict

from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import create_serial_evaluator

from ..compat.ding_timers import use_plain_timers
from ..worker.step_callback import WatchedManager
from . import weights
from .node import Node
from .recorder import Recorder


class Ended(Exception):
    """What ends an evaluation when the run is over, or this process is to end."""


class EvaluatorNode(object):
    """
    Overview:
        Environments, a policy to evaluate, and the node that hears what is to be evaluated.
    Interfaces:
        ``step``, ``close``.
    """

    def __init__(self, cfg: 'EasyDict', node: Node, folder: str) -> None:  # noqa: F821
        """
        Arguments:
            - cfg (:obj:`EasyDict`): The merged config.
            - node (:obj:`Node`): Orders and answers.
            - folder (:obj:`str`): Where DI-engine's evaluator writes its text log, below the current one.
        """
        self._node = node
        self._recorder = Recorder()
        env_class, _, evaluator_cfgs = get_vec_env_setting(cfg.env)
        env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in evaluator_cfgs])
        env.seed(cfg.seed, dynamic_seed=False)
        set_pkg_seed(cfg.seed, use_cuda=cfg.policy.cuda)
        self._policy = create_policy(cfg.policy, enable_field=['eval'])
        self._evaluator = create_serial_evaluator(
            cfg.policy.eval.evaluator,
            env=WatchedManager(env, self._look_at),
            policy=self._policy.eval_mode,
            tb_logger=self._recorder,
            exp_name=folder,
        )
        use_plain_timers(self._evaluator)

    def _look_at(self, timesteps: Dict[int, Any]) -> None:
        if self._node.should_end():
            raise Ended

    def step(self) -> None:
        """
        Overview:
            Evaluate what is asked for next, or wait a moment for that.
        Raises:
            - LearnerGone, Refused: As ``Node.next_order``.
            - Ended: If it is not to be finished.
        """
        order = self._node.next_order(lambda order: str(order['number']))
        if order is None:
            return
        _, content = self._node.weights(str(order['number']))
        self._policy.eval_mode.load_state_dict(dict(model=weights.from_bytes(content)))
        _, info = self._evaluator.eval(None, order['train_iter'], order['env_step'])
        returns = [float(value) for value in info['eval_episode_return']]
        self._node.answer(order, 'evaluated', dict(returns=returns, records=self._recorder.take()))

    def close(self) -> None:
        """Close the environments."""
        self._evaluator.close()
