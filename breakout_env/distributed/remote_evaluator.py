"""The evaluator of a run, as the learner sees it: asked now and then, answered while the training goes on."""

import copy
import io
import json
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

import numpy as np
import torch

from ..utils import run_registry
from ..utils.atomic_file import write_bytes
from ..worker.evaluator import BEST_FILE, best_score_in
from . import weights
from .link import Link
from .members import Member, Members
from .recorder import replay

# Weights that have not come by then are lost: a hello a second says what is lacking.
_SEND_AGAIN_S = 3.0
# For an evaluator to join before anything is said about it.
_ALONE_S = 30.0


class RemoteEvaluator(object):
    """
    Overview:
        Has weights evaluated by whichever evaluator takes part, one evaluation at a time, and does with the result \
        what DI-engine's evaluator does in its own process: curves, the best checkpoint, the end at ``stop_value``. \
        The learner does not wait, so the checkpoint of the best score is a copy made when it asked.
    Interfaces:
        ``should_eval``, ``begin``, ``look``, ``state``, ``load_state``.
    Properties:
        ``is_under_way``, ``has_helped``, ``last_iteration``, ``number``.
    """

    def __init__(
        self,
        cfg: 'EasyDict',  # noqa: F821
        link: Link,
        members: Members,
        exp_name: str,
        policy: 'Policy',  # noqa: F821
        tb_logger: 'SummaryWriter',  # noqa: F821
        say: Callable[[str], None],
    ) -> None:
        """
        Arguments:
            - cfg (:obj:`EasyDict`): ``policy.eval.evaluator`` of the merged config.
            - link (:obj:`Link`): To the others.
            - members (:obj:`Members`): Who they are.
            - exp_name (:obj:`str`): Folder of the experiment.
            - policy (:obj:`Policy`): The learner's.
            - tb_logger (:obj:`SummaryWriter`): Where curves go.
            - say (:obj:`Callable`): Told, in a sentence, what happens.
        """
        self._cfg = cfg
        self._link = link
        self._members = members
        self._exp_name = exp_name
        self._policy = policy
        self._tb_logger = tb_logger
        self._say = say
        self._best_score = float('-inf')
        self.last_iteration = -1  # updates when the last one was asked for
        self._asked: Optional[Dict[str, Any]] = None  # the evaluation that is under way
        self._number: Optional[int] = None  # of its order, None while nobody is there to do it
        self._result: Optional[dict] = None
        self._sent_s = self._asked_s = 0.0
        self._has_said_nobody = False
        self.has_helped = False  # whether any evaluator has ever taken part
        members.on_join.append(self._assign)
        members.on_leave.append(self._give_up)
        link.on('evaluated', self._take_result)
        run_registry.register(exp_name, 'evaluator', self)

    @property
    def number(self) -> int:
        """Evaluators that take part now."""
        return len(self._members.of_role('evaluator'))

    @property
    def is_under_way(self) -> bool:
        """Whether a result is waited for."""
        return self._asked is not None

    # ---------------------------------------------------------------- asking

    def should_eval(self, train_iter: int) -> bool:
        """
        Overview:
            Whether it is time, as DI-engine's evaluator has it. One that takes longer than ``eval_freq`` is finished \
            first.
        Arguments:
            - train_iter (:obj:`int`): Updates so far.
        """
        saver = run_registry.look_up(self._exp_name, 'saver')
        if saver is not None:
            saver.between_collections()
        is_due = self.last_iteration < 0 or train_iter - self.last_iteration >= self._cfg.eval_freq
        return is_due and not self.is_under_way

    def begin(self, train_iter: int, env_step: int) -> None:
        """
        Overview:
            Ask for an evaluation of the policy as it is now.
        Arguments:
            - train_iter (:obj:`int`): Updates so far.
            - env_step (:obj:`int`): Env steps so far.
        """
        with self._members.lock:
            self.last_iteration = train_iter
            checkpoint = copy.deepcopy(self._policy.learn_mode.state_dict())
            # the names that DI-engine's own checkpoints have
            checkpoint.update(last_iter=train_iter, last_step=env_step)
            content = weights.to_bytes(self._policy.eval_mode.state_dict()['model'])
            self._asked = dict(train_iter=train_iter, env_step=env_step, checkpoint=checkpoint, content=content)
            self._number, self._result = None, None
            for member in self._members.of_role('evaluator'):
                self._assign(member)
            self._asked_s = time.monotonic()

    def _assign(self, member: Member) -> None:
        """Give what is asked to a member, if it can do it and nobody else does. With the lock held."""
        self.has_helped = self.has_helped or member.role == 'evaluator'
        if member.role != 'evaluator' or self._asked is None or self._number is not None:
            return
        asked = self._asked
        self._number = self._members.give(member, dict(train_iter=asked['train_iter'], env_step=asked['env_step']))
        self._members.tell([member])
        self._send_weights(member)

    def _say_if_nobody(self) -> None:
        is_alone = self.is_under_way and self._number is None and time.monotonic() - self._asked_s > _ALONE_S
        if is_alone and not self._has_said_nobody:
            self._has_said_nobody = True
            self._say('No evaluator takes part, so nothing is evaluated; one may join at any time.')

    def _send_again(self) -> None:
        for member in self._members.of_role('evaluator'):
            if self._number in member.lacking and time.monotonic() - self._sent_s > _SEND_AGAIN_S:
                self._send_weights(member)

    def _send_weights(self, member: Member) -> None:
        self._sent_s = time.monotonic()
        self._link.send(
            'weights',
            dict(
                session=self._members.session,
                to=member.name,
                purpose=str(self._number),
                version=self._asked['train_iter'],
                payload=self._asked['content'],
            ),
        )

    def _give_up(self, member: Member) -> None:
        if self._number in member.orders:
            self._number = None
            for other in self._members.of_role('evaluator'):
                self._assign(other)

    # ---------------------------------------------------------------- the answer

    def _take_result(self, message: dict) -> None:
        with self._members.lock:
            if message['session'] == self._members.session:
                order = self._members.close_order(message)
                if order is not None and message['number'] == self._number:
                    self._result = message
                member = self._members.get(message['name'])
                if member is not None:
                    self._members.tell([member])

    def look(self) -> bool:
        """
        Overview:
            Take the result, if there is one.
        Returns:
            - finished (:obj:`bool`): Whether the score has reached ``stop_value``.
        """
        with self._members.lock:
            result, asked = self._result, self._asked
            if result is None:
                self._send_again()
                self._say_if_nobody()
                return False
            self._result = self._asked = self._number = None
        returns: List[float] = result['returns']
        score = float(np.mean(returns))
        replay(result['records'], self._tb_logger)
        self._tb_logger.flush()
        scalars = [values for kind, values in result['records'] if kind == 'scalar']
        q_values = [value for tag, value, _ in scalars if tag.endswith('held_out_q')]
        progress = run_registry.look_up(self._exp_name, 'progress')
        if progress is not None:
            q_value = q_values[-1] if q_values else None
            progress.note_evaluation(returns, q_value, asked['train_iter'], asked['env_step'])
        self._say(
            f'Evaluated at {asked["train_iter"]:,} updates and {asked["env_step"]:,} env steps: {score:.1f} points '
            f'over {len(returns)} games.'
        )
        if score > self._best_score:
            self._best_score = score
            self._save_best(asked['checkpoint'])
        return score >= self._cfg.stop_value and asked['train_iter'] > 0

    def _save_best(self, checkpoint: Dict[str, Any]) -> None:
        content = io.BytesIO()
        torch.save(checkpoint, content)
        try:
            write_bytes(Path(self._exp_name, 'ckpt', 'ckpt_best.pth.tar'), content.getvalue())
            write_bytes(Path(self._exp_name) / BEST_FILE, json.dumps(self._best_score).encode())
        except OSError as error:  # it must not end the training
            self._say(f'The checkpoint of the best score was not saved: {error}.')

    # ---------------------------------------------------------------- over stops and starts

    def state(self) -> Dict[str, float]:
        """Best score and iteration of the last evaluation that was finished; one under way will be done again."""
        last = self.last_iteration
        if self._asked is not None:
            last = max(-1, last - self._cfg.eval_freq)
        return dict(best_score=self._best_score, last_iteration=last)

    def load_state(self, state: Mapping[str, float]) -> None:
        """Take over what ``state`` gave; the best score is that of ``ckpt_best``, which may be newer."""
        self._best_score = max(state['best_score'], best_score_in(Path(self._exp_name)))
        self.last_iteration = state['last_iteration']
