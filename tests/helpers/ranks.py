"""Data-parallel ranks: what two of them do together without games, and configs and folders of whole runs."""

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

import torch
from ding.policy import DQNPolicy
from ding.worker import BaseLearner

from breakout_env import LeanDQNPolicy
from breakout_env.cluster.data_parallel import RankFailed, RankLost, Ranks
from breakout_env.compat.ding_rank_logs import average_logs, learner_place
from breakout_env.run.stop_request import Stopped
from helpers.policies import parameters, policy, transitions
from helpers.runs import config_in

UPDATES = 12  # over a copy into the target network, which is every 10 in these policies
BATCH_SIZE = 16
# lean and stock; without and with the weights of prioritised replay
POLICIES = {
    f'{name}{"_weighted" if weighted else ""}': (policy_class, weighted)
    for name, policy_class in (('lean', LeanDQNPolicy), ('stock', DQNPolicy))
    for weighted in (False, True)
}


def batch_of(rank: int, update: int, weighted: bool) -> List[dict]:
    """What a rank learns from; with importance weights of its own if asked for."""
    batch = transitions(BATCH_SIZE, seed=1000 * rank + update)
    for i, transition in enumerate(batch):
        if weighted:
            transition['IS'] = torch.tensor(0.1 + (i + rank) % 5)
    return batch


def learn(policy_class: Any, weighted: bool, ranks: List[int], **options: Any) -> Tuple[torch.Tensor, ...]:
    """Learn from the batches of these ranks: the gradients of the first update, the weights after all, and before."""
    learner = policy(policy_class, priority=weighted, priority_IS_weight=weighted, **options)
    gradients = None
    for update in range(UPDATES):
        learner._forward_learn([transition for rank in ranks for transition in batch_of(rank, update, weighted)])
        if gradients is None:
            gradients = torch.cat([weight.grad.flatten() for weight in learner._model.parameters()]).clone()
    return gradients, parameters(learner), learner.start


def work_as_rank(rank: int, ports: List[int], results: Path) -> None:
    """The program of one of two processes; it saves what it found, by name."""
    torch.set_num_threads(1)
    os.chdir(results.parent)
    os.environ.update(RANK=str(rank), WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT=str(ports[0]))
    with Ranks(cuda=False, peer_timeout_s=60) as ranks:
        found = {**_learn_together(ranks), **_exchange_messages(ranks)}
    os.environ['MASTER_PORT'] = str(ports[1])
    found['lost'] = _wait_for_rank_that_hangs(rank)
    torch.save(found, results)


def _learn_together(ranks: Ranks) -> Dict[str, Any]:
    torch.manual_seed(ranks.rank)
    found: Dict[str, Any] = {'own random number': torch.rand(1).item()}
    for name, (policy_class, weighted) in POLICIES.items():
        found[name] = learn(policy_class, weighted, [ranks.rank], multi_gpu=True)
    found['bfloat16'] = learn(LeanDQNPolicy, False, [ranks.rank], multi_gpu=True, learn=dict(autocast='bfloat16'))

    cfg = policy(DQNPolicy)._cfg
    cfg.multi_gpu = True
    torch.manual_seed(ranks.rank)
    stock = DQNPolicy(cfg, enable_field=['learn'])
    found['first weights'] = parameters(stock)

    cfg = BaseLearner.default_config()
    cfg.hook.log_show_after_iter = 2
    learner = BaseLearner(cfg, stock.learn_mode, dist_info=learner_place(ranks.rank), exp_name=f'learner_{ranks.rank}')
    average_logs(learner, ranks.mean, show_every=2)
    found['losses'] = [learner.train(batch_of(ranks.rank, update, False))[0]['total_loss'] for update in range(3)]
    found['shown loss'] = learner.monitor.avg['total_loss']() if ranks.is_first else None
    return found


def _exchange_messages(ranks: Ranks) -> Dict[str, Any]:
    found: Dict[str, Any] = dict(
        backend=ranks.backend,
        any=ranks.any(ranks.rank == 1, False, True),
        sum=ranks.sum(10**12 + ranks.rank, 1),
        mean=ranks.mean([ranks.rank, 0.5]),
        gather=ranks.gather(f'rank {ranks.rank}'),
        each=ranks.each(lambda: ranks.rank * 10),
        from_first=ranks.from_first(lambda: f'by rank {ranks.rank}'),
    )

    def fail() -> None:
        raise IndexError('list index out of range')

    def stop() -> bool:
        raise Stopped

    for failing in range(2):
        try:
            ranks.each(fail if ranks.rank == failing else lambda: None)
        except (IndexError, RankFailed) as error:
            found[f'rank {failing} fails'] = (type(error).__name__, str(error))
    found['stopped evaluation'] = ranks.evaluated(stop)
    found['sum after that'] = ranks.sum(1)
    return found


def _wait_for_rank_that_hangs(rank: int) -> Tuple[float, str]:
    """The second rank does not answer. Seconds until an error, and its message."""
    began_s = time.monotonic()
    try:
        with Ranks(cuda=False, peer_timeout_s=3) as ranks:
            ranks.sum(1)
            began_s = time.monotonic()
            if rank == 1:
                time.sleep(8)
            ranks.sum(1)
    except RankLost as error:
        return time.monotonic() - began_s, str(error)
    return time.monotonic() - began_s, ''


# ---------------------------------------------------------------- whole runs

# by gloo on any machine
SHORT_GAMES = ((r'stop_value=400,', 'stop_value=400, max_episode_frames=4000,'), (r'cuda=True', 'cuda=False'))
COUNTING = """
import json, os
from pathlib import Path
from ding.envs import SyncSubprocessEnvManager
from ding.utils import ENV_MANAGER_REGISTRY


@ENV_MANAGER_REGISTRY.register('counting', force_overwrite=True)
class CountingManager(SyncSubprocessEnvManager):
    # counts what the pipeline should count, and writes that and its seeds to a file for each run, rank and role
    def seed(self, *args, **kwargs):
        super().seed(*args, **kwargs)
        self.seeds, self.steps = list(self._env_seed), 0
        role = 'collector' if self.env_num == 2 else 'evaluator'
        self.counts = Path(f'{role}_{os.environ.get("RANK")}_{os.getpid()}.json')

    def step(self, actions):
        timesteps = super().step(actions)
        self.steps += len(timesteps)
        unfinished = self.counts.with_suffix('.unfinished')  # a kill leaves no half file
        unfinished.write_text(json.dumps(dict(seeds=self.seeds, steps=self.steps)))
        unfinished.replace(self.counts)
        return timesteps
"""


def counting_config(folder: Path, *changes) -> Path:
    """The small config of the tests about resuming, with short games, and a manager that counts its steps."""
    config = config_in(
        folder,
        0,
        (r"type='subprocess'", "type='counting'"),
        *SHORT_GAMES,
        (r'resume_training=True', 'resume_training=False'),
        (r"policy=dict\(type='dqn'\)", "policy=dict(type='lean_dqn', import_names=['breakout_env'])"),
        *changes,
    )
    config.write_text(config.read_text() + COUNTING)
    return config


def counts_of(folder: Path, role: str) -> dict:
    """What the counting managers wrote, by rank; the files are removed."""
    found = {}
    for path in folder.glob(f'{role}_*.json'):
        found[path.name.split('_')[1]] = json.loads(path.read_text())
        path.unlink()
    return found


def of_rank(folder: Path, rank: int) -> Path:
    """Where a rank saves."""
    return folder / 'ranks' / str(rank) if rank else folder
