"""The training pipeline with a source of experience that is given to it."""

from pathlib import Path

import pytest
import torch
from easydict import EasyDict

from breakout_env.policy.initial_weights import InitialWeights
from breakout_env.run.budget import Budget
from breakout_env.run.paths import saves_in
from breakout_env.run.pipeline import Fragment, train
from helpers.replay import transitions
from helpers.runs import N_SAMPLE, UPDATES, weights

BUDGET = Budget(env_steps=80)


class Scripted:
    """Random transitions, and evaluations that reach ``stop_value`` at an update."""

    evaluator = None

    def __init__(self, parts, reached_at):
        self.learner, self.reached_at = parts.learner, reached_at
        self.collector, self.evaluated_at, self.epsilons = EasyDict(envstep=0), [], []

    def start(self, commander, replay_buffer):
        pass

    def fragments(self, settings, push):
        for of_collection in settings:
            self.epsilons.append(of_collection['eps'])
            first, self.collector.envstep = self.collector.envstep, self.collector.envstep + N_SAMPLE
            data = transitions(first, first + N_SAMPLE, side=84, value_gamma=torch.tensor([0.9]), collect_iter=0)
            push(fragment := Fragment(data, self.collector.envstep))
            yield fragment

    def evaluate_if_due(self):
        return self.learner.train_iter == self.reached_at

    def evaluate(self):
        self.evaluated_at.append(self.learner.train_iter)


@pytest.mark.parametrize('reached_at, fragments, evaluated_at', [(None, 10, [20]), (8, 4, [])])
def test_a_run_ends_by_its_budget_or_its_score_and_is_saved(config, reached_at, fragments, evaluated_at, capsys):
    made = []

    def source(parts):
        made.append(Scripted(parts, reached_at))
        return made[0]

    changes = {'policy.random_collect_size': 0, 'policy.learn.resume_training': False}
    folder = train(str(config), 0, BUDGET, changes=changes, source=source)
    assert made[0].epsilons == sorted(made[0].epsilons, reverse=True) and len(made[0].epsilons) == fragments
    assert made[0].evaluated_at == evaluated_at
    (save,) = saves_in(Path(folder))
    assert (save['iteration'], save['env_step']) == (UPDATES * fragments, N_SAMPLE * fragments) and save['buffer']
    said = capsys.readouterr().out
    assert ('The budget of 80 env steps is used up' in said) is (reached_at is None)
    assert ('The score has reached env.stop_value' in said) is (reached_at is not None)


def test_initial_weights_begin_a_run_and_do_not_change_a_resumed_one(config, capsys):
    first, changes = [], {'policy.random_collect_size': 0, 'policy.learn.resume_training': False}

    def source(parts):
        first.append(Scripted(parts, None))
        return first[-1]

    folder = train(str(config), 0, BUDGET, changes=changes, source=source)
    newest = weights(Path(folder, 'ckpt', f'iteration_{10 * UPDATES}.pth.tar'))
    initial = InitialWeights('a/file', newest, None)
    frozen = {**changes, 'policy.learn.learning_rate': 1e-12}
    begun = train(str(config), 1, BUDGET, changes=frozen, source=source, initial=initial)
    same = weights(Path(begun, 'ckpt', f'iteration_{10 * UPDATES}.pth.tar'))
    assert begun != folder and all(torch.allclose(newest[name], same[name]) for name in newest)
    assert 'The training begins with the weights of a/file' in capsys.readouterr().out

    other = InitialWeights('a/file', {name: torch.zeros_like(value) for name, value in newest.items()}, None)
    train(str(config), 0, BUDGET, resume=begun, changes=frozen, source=source, initial=other)
    assert 'begins with' not in capsys.readouterr().out
    resumed = weights(Path(begun, 'ckpt', f'iteration_{10 * UPDATES}.pth.tar'))
    assert all(torch.allclose(newest[name], resumed[name]) for name in newest)
