"""Several processes learn as one does from their batches together, and begin, save, end and fail together."""

import json
import multiprocessing
import os
import re
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from click.testing import CliRunner
from ding.policy import DQNPolicy
from ding.worker import BaseLearner
from test_lean_dqn import parameters, policy, transitions

from breakout_env import LeanDQNPolicy
from breakout_env.agent.agent import load_agent
from breakout_env.cluster.data_parallel import SEEDS_APART, RankFailed, RankLost, Ranks
from breakout_env.compat.ding_rank_logs import average_logs, learner_place
from breakout_env.run.checkpoints import saves_in
from breakout_env.run.stop_request import Stopped
from breakout_env.utils.run_registry import part_of
from helpers.processes import BIN, ROOT, Command, free_port, run, wait_until
from helpers.runs import DEMO, N_SAMPLE, NAME, RANDOM, UPDATES, as_before, config_in, cut_off, scalars, weights  # noqa: F401

sys.path.append(str(ROOT / 'entry'))
import breakout_dqn_ddp  # noqa: F401
import breakout_dqn_main  # noqa: F401

ENTRY = str(ROOT / 'entry' / 'breakout_dqn_ddp.py')
TORCHRUN = [str(BIN / 'torchrun'), '--standalone', '--nproc-per-node', '2', ENTRY]
UPDATES_COMPARED = 12  # over a copy into the target network, which is every 10 in these policies
BATCH = 16
BUDGET = 2 * RANDOM + 20 * 2 * N_SAMPLE  # env steps of the small run
# lean, stock; without and with the weights of prioritised replay
POLICIES = {
    f'{name}{"_weighted" if weighted else ""}': (policy_class, weighted)
    for name, policy_class in (('lean', LeanDQNPolicy), ('stock', DQNPolicy))
    for weighted in (False, True)
}


def batch_of(rank: int, update: int, weighted: bool) -> list:
    """What a rank learns from; with weights of its own if asked for."""
    batch = transitions(BATCH, seed=1000 * rank + update)
    for i, transition in enumerate(batch):
        if weighted:
            transition['IS'] = torch.tensor(0.1 + (i + rank) % 5)
    return batch


def learned(policy_class, weighted: bool, ranks: list, **options) -> tuple:
    """The gradients of the first update, the weights after several, and where they began."""
    ours = policy(policy_class, priority=weighted, priority_IS_weight=weighted, **options)
    gradients = None
    for update in range(UPDATES_COMPARED):
        ours._forward_learn([one for rank in ranks for one in batch_of(rank, update, weighted)])
        if gradients is None:
            gradients = torch.cat([weight.grad.flatten() for weight in ours._model.parameters()])
    return gradients.clone(), parameters(ours), ours.start


# ---------------------------------------------------------------- two processes, without games


def at_work(rank: int, ports: list, answers: Path) -> None:
    """What each of two processes does, in the same order; its answers, by name, go into a file."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT=str(ports[0]))
    found = {}
    with Ranks(cuda=False, peer_timeout_s=60) as ranks:
        torch.manual_seed(rank)
        found['own random number'] = torch.rand(1).item()
        for name, (policy_class, weighted) in POLICIES.items():
            found[name] = learned(policy_class, weighted, [rank], multi_gpu=True)
        found['bfloat16'] = learned(LeanDQNPolicy, False, [rank], multi_gpu=True, learn=dict(autocast='bfloat16'))

        cfg = policy(DQNPolicy)._cfg
        cfg.multi_gpu = True
        torch.manual_seed(rank)
        ours = DQNPolicy(cfg, enable_field=['learn'])
        found['start'] = parameters(ours)

        os.chdir(answers.parent)
        cfg = BaseLearner.default_config()
        cfg.hook.log_show_after_iter = 2
        learner = BaseLearner(cfg, ours.learn_mode, dist_info=learner_place(ranks.rank), exp_name=f'learner_{rank}')
        average_logs(ranks, learner, show_every=2)
        found['losses'] = [learner.train(batch_of(rank, update, False))[0]['total_loss'] for update in range(3)]
        found['shown'] = learner.monitor.avg['total_loss']() if ranks.is_first else None

        found['any'] = ranks.any(rank == 1, False, True)
        found['sum'] = ranks.sum(10**12 + rank, 1)
        found['mean'] = ranks.mean([rank, 0.5])
        found['gather'] = ranks.gather(f'rank {rank}')
        found['each'] = ranks.each(lambda: rank * 10)
        found['from_first'] = ranks.from_first(lambda: f'by rank {rank}')
        for name, failing in (('first fails', 0), ('other fails', 1)):
            try:
                ranks.each(lambda: [][0] if rank == failing else 'fine')  # noqa: B023
            except (IndexError, RankFailed) as error:
                found[name] = (type(error).__name__, str(error))

        def stopped() -> bool:
            raise Stopped

        found['evaluation stopped'] = ranks.evaluated(stopped)
        found['still together'] = ranks.sum(1)
    found['backend'] = ranks.backend
    os.environ['MASTER_PORT'] = str(ports[1])
    began_s = time.monotonic()
    try:
        with Ranks(cuda=False, peer_timeout_s=2) as ranks:
            ranks.sum(1)
            began_s = time.monotonic()
            if rank == 1:
                time.sleep(4)  # it hangs, and does not answer
            else:
                ranks.sum(1)
    except RankLost as error:
        found['lost'] = (time.monotonic() - began_s, str(error))
    torch.save(found, answers)


@pytest.fixture(scope='module')
def two_ranks(tmp_path_factory) -> list:
    """The answers of two processes that worked together, by rank."""
    context = multiprocessing.get_context('spawn')
    answers = [tmp_path_factory.mktemp('ranks') / f'{rank}.pt' for rank in range(2)]
    ports = [free_port(), free_port()]
    processes = [context.Process(target=at_work, args=(rank, ports, answers[rank])) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(90)
    assert [process.exitcode for process in processes] == [0, 0]
    return [torch.load(path, weights_only=True) for path in answers]


@pytest.mark.parametrize('name', POLICIES)
def test_two_ranks_learn_as_one_process_does_from_both_batches(two_ranks, name):
    policy_class, weighted = POLICIES[name]
    torch.set_num_threads(1)
    gradients, after, start = learned(policy_class, weighted, [0, 1])
    for rank in two_ranks:
        their_gradients, their_after, their_start = rank[name]
        assert torch.equal(their_start, start)
        torch.testing.assert_close(their_gradients, gradients, rtol=1e-4, atol=1e-7)
        # as in test_lean_dqn: Adam makes much of a gradient that is there by rounding alone
        assert (their_after - after).norm() < 0.003 * (after - start).norm()
    # one batch alone would have led elsewhere
    _, alone, _ = learned(policy_class, weighted, [0])
    assert (alone - after).norm() > 0.1 * (after - start).norm()


@pytest.mark.parametrize('name', [*POLICIES, 'bfloat16'])
def test_all_ranks_have_the_same_weights_to_the_bit(two_ranks, name):
    for ours, theirs in zip(two_ranks[0][name], two_ranks[1][name]):
        assert torch.equal(ours, theirs)
    _, after, start = two_ranks[0][name]
    assert torch.isfinite(after).all() and not torch.equal(after, start)


def test_ranks_of_different_seeds_begin_with_the_weights_of_the_first(two_ranks):
    assert two_ranks[0]['own random number'] != two_ranks[1]['own random number']
    assert torch.equal(two_ranks[0]['start'], two_ranks[1]['start'])


def test_the_log_shows_means_over_all_ranks(two_ranks):
    losses = [loss for rank in two_ranks for loss in rank['losses']]
    assert len(set(losses)) == 6
    assert two_ranks[0]['shown'] == pytest.approx(sum(losses) / 6)


def test_what_one_rank_says_all_ranks_hear(two_ranks):
    for rank in two_ranks:
        assert rank['backend'] == 'gloo'
        assert rank['any'] == (True, False, True)
        assert rank['sum'] == (2 * 10**12 + 1, 2)
        assert rank['mean'] == [0.5, 0.5]
        assert rank['gather'] == ['rank 0', 'rank 1'] and rank['each'] == [0, 10]
        assert rank['from_first'] == 'by rank 0'


def test_what_fails_on_one_rank_ends_all_and_is_named(two_ranks):
    out_of_range = ('IndexError', 'list index out of range')
    assert two_ranks[0]['first fails'] == out_of_range == two_ranks[1]['other fails']
    assert two_ranks[1]['first fails'] == ('RankFailed', 'rank 0 ended: list index out of range')
    assert two_ranks[0]['other fails'] == ('RankFailed', 'rank 1 ended: list index out of range')


def test_an_evaluation_that_is_stopped_keeps_nobody_waiting(two_ranks):
    assert all(rank['evaluation stopped'] is None and rank['still together'] == (2,) for rank in two_ranks)


def test_a_rank_that_hangs_ends_the_others_in_time(two_ranks):
    seconds, said = two_ranks[0]['lost']
    assert 1.5 < seconds < 3.5
    assert said.startswith('rank 0 of 2 lost another one, which ended or did not answer within 2 seconds, and ends, ')


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
    # counts for itself what the pipeline is to count, and notes its seeds; a file for each run, rank and role
    def seed(self, *args, **kwargs):
        super().seed(*args, **kwargs)
        self.seeds, self.steps = list(self._env_seed), 0
        role = 'collector' if self.env_num == 2 else 'evaluator'
        self.note = Path(f'{role}_{os.environ.get("RANK")}_{os.getpid()}.json')

    def step(self, actions):
        timesteps = super().step(actions)
        self.steps += len(timesteps)
        self.note.write_text(json.dumps(dict(seeds=self.seeds, steps=self.steps)))
        return timesteps
"""


def counting_config(folder: Path, *changes) -> Path:
    """The small config of the tests about resuming, with short games, and a manager that counts what it plays."""
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


def notes(folder: Path, role: str) -> dict:
    """What the counting managers noted, by rank; read once."""
    found = {}
    for path in folder.glob(f'{role}_*.json'):
        found[path.name.split('_')[1]] = json.loads(path.read_text())
        path.unlink()
    return found


def pairs_of(folder: Path, rank: int) -> list:
    return saves_in(folder / 'ranks' / str(rank) if rank else folder)


def torchrun(config: Path, *arguments: str) -> str:
    return run([*TORCHRUN, '-c', str(config), *arguments], config.parent, 120, OMP_NUM_THREADS='1')


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> Path:
    """The folder in which torchrun trained two ranks, from the beginning to the end of their budget."""
    folder = tmp_path_factory.mktemp('trained')
    output = torchrun(counting_config(folder), '--env-step', str(BUDGET), '-s', '3')
    (folder / 'output').write_text(output)
    return folder


def test_a_run_of_two_ranks_is_logged_evaluated_and_saved_as_one(trained):
    folder, output = trained / NAME, (trained / 'output').read_text()
    assert '2 rank(s) by gloo: 4 environments, batches of 16 transitions, learning rate 0.0001, 8 env steps' in output
    assert output.count('is used up.') == output.count('  evaluate:') == 1
    assert scalars(folder, 'total_loss') and scalars(folder, 'reward_mean')
    assert (folder / 'log' / 'progress.jsonl').exists()
    checkpoints = list((folder / 'ckpt').glob('*.pth.tar'))
    assert len(checkpoints) >= 4 and all(load_agent(checkpoint) for checkpoint in checkpoints)
    first, second = pairs_of(folder, 0)[0], pairs_of(folder, 1)[0]
    ours, theirs = weights(folder / first['checkpoint']), weights(folder / 'ranks' / '1' / second['checkpoint'])
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_each_rank_plays_and_remembers_for_itself_and_env_steps_are_those_of_all(trained):
    folder, played, evaluated = trained / NAME, notes(trained, 'collector'), notes(trained, 'evaluator')
    assert played['0']['seeds'] == [3, 4] and played['1']['seeds'] == [3 + SEEDS_APART, 4 + SEEDS_APART]
    assert list(evaluated) == ['0'] and evaluated['0']['seeds'] == [3]
    first, second = pairs_of(folder, 0)[0], pairs_of(folder, 1)[0]
    assert first['iteration'] == second['iteration'] > 0 and first['ranks'] == second['ranks'] == 2
    assert first['env_step'] == second['env_step'] == played['0']['steps'] + played['1']['steps'] >= BUDGET
    contents = [(folder / place / pair['buffer']).read_bytes() for place, pair in (('', first), ('ranks/1', second))]
    assert contents[0] != contents[1]


def test_a_run_of_two_ranks_is_started_again_stopped_and_gone_on_with(trained):
    folder, config, ended = trained / NAME, trained / DEMO.name, pairs_of(trained / NAME, 0)[0]
    # one that is killed is what torchrun can start again, with all others
    patient = ['env', 'TORCH_ELASTIC_SHUTDOWN_TIMEOUT=100']  # on a machine that does much else meanwhile
    restarting = [*patient, TORCHRUN[0], '--max-restarts', '1', *TORCHRUN[1:]]
    command = Command([*restarting, '-c', str(config), '--env-step', '1000000', '--resume'], trained)
    command.wait_for(lambda: pairs_of(folder, 1)[0]['iteration'] > ended['iteration'] + 3 * UPDATES)
    assert f'Resuming {NAME} at {ended["iteration"]:,} updates and {ended["env_step"]:,} env steps' in command.text
    (victim,) = (rank for rank in psutil.Process(command.process.pid).children() if rank.environ()['RANK'] == '1')
    victim.kill()
    command.wait_for(lambda: command.text.count('Resuming') == 2)
    text = command.text.split('Resuming')[2]
    again = int(re.search(r' at ([\d,]+) updates', text)[1].replace(',', ''))
    assert again > ended['iteration']
    command.wait_for(lambda: pairs_of(folder, 1)[0]['iteration'] > again + 3 * UPDATES)

    # a scheduler's signal to all processes, to those of the environments, too, in the midst of anything
    ours = psutil.Process(command.process.pid).children(recursive=True)
    assert len(ours) >= 2 + 2 * 2 + 1  # ranks, their environments, and the first one's for evaluations
    for process in [command.process, *ours]:
        process.send_signal(signal.SIGTERM)
    command.process.wait(110)
    assert wait_until(lambda: not any(process.is_running() for process in ours)), ours
    text = command.text.split('Resuming')[2]
    assert text.count('Stopping: ') == text.count('  go on:') == 1, text
    assert text.count('Traceback') == text.count('raise SignalException') == 1, text  # torchrun's own
    notes(trained, 'collector')
    stopped = pairs_of(folder, 0)
    assert len(stopped) == 2
    assert [pair['iteration'] for pair in stopped] == [pair['iteration'] for pair in pairs_of(folder, 1)]

    # where one rank's save is damaged, all take the one before it
    cut_off(folder / 'ranks' / '1' / pairs_of(folder, 1)[0]['buffer'])
    output = torchrun(config, '--env-step', str(stopped[1]['env_step'] + 100), '--resume', NAME)
    assert f'Resuming {NAME} at {stopped[1]["iteration"]:,} updates' in output
    assert 'trying the save before it' in output
    played, ended = notes(trained, 'collector'), pairs_of(folder, 0)[0]
    assert ended['env_step'] == stopped[1]['env_step'] + played['0']['steps'] + played['1']['steps']
    assert ended['iteration'] == pairs_of(folder, 1)[0]['iteration'] > stopped[1]['iteration']


def test_a_rank_that_is_killed_ends_the_others_and_leaves_no_process(tmp_path):
    """Started by hand: torchrun would kill the others by itself. What was saved is there on all ranks."""
    folder = tmp_path / NAME
    config = config_in(tmp_path, 0, *SHORT_GAMES)
    place = ['env', 'WORLD_SIZE=2', 'MASTER_ADDR=127.0.0.1', f'MASTER_PORT={free_port()}']
    first, second = (
        Command([*place, f'RANK={rank}', sys.executable, ENTRY, '-c', str(config)], tmp_path) for rank in range(2)
    )
    second.wait_for(lambda: len(pairs_of(folder, 1)) == 2)
    workers = [worker for one in (first, second) for worker in psutil.Process(one.process.pid).children(recursive=True)]
    assert len(workers) >= 3  # two environments, and one to evaluate
    second.process.send_signal(signal.SIGKILL)
    killed_s = time.monotonic()
    assert first.process.wait(30) == 1, first.text
    assert time.monotonic() - killed_s < 20
    second.process.wait(10)
    assert 'rank 0 of 2 lost another one, which ended or did not answer within 1800 seconds' in first.text
    assert 'Traceback' not in first.text
    assert wait_until(lambda: not any(worker.is_running() for worker in workers)), workers
    common = {pair['iteration'] for pair in pairs_of(folder, 0)} & {pair['iteration'] for pair in pairs_of(folder, 1)}
    assert common


# ---------------------------------------------------------------- one process


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to run an entry in, in this process."""
    monkeypatch.chdir(tmp_path)
    for name in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT'):
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(1)
    return tmp_path


def invoked(module, config: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(module.main, ['-c', str(config), *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_one_process_alone_learns_what_the_main_entry_learns(here):
    config = counting_config(here, (r'batch_size=8', 'batch_size=80'))  # more than random play gives
    output = invoked(breakout_dqn_ddp, config, '--env-step', '150')
    assert '1 rank(s) by gloo: 2 environments, batches of 80 transitions' in output
    assert not (here / NAME / 'ranks').exists() and not torch.distributed.is_initialized()
    ours = saves_in(Path(NAME))[0]
    os.rename(NAME, 'alone')
    invoked(breakout_dqn_main, config, '--env-step', '150')
    theirs = saves_in(Path(NAME))[0]
    assert (ours['iteration'], ours['env_step']) == (theirs['iteration'], theirs['env_step'])
    ours, theirs = weights(Path('alone', ours['checkpoint'])), weights(Path(NAME, theirs['checkpoint']))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)

    # and what one of them saved the other goes on with
    assert 'Resuming alone at ' in invoked(breakout_dqn_main, config, '--env-step', '170', '--resume', 'alone')
    assert f'Resuming {NAME} at ' in invoked(breakout_dqn_ddp, config, '--env-step', '170', '--resume')


def test_a_run_of_another_number_of_ranks_gets_a_sentence(here):
    config = counting_config(here)
    invoked(breakout_dqn_ddp, config, '--env-step', '100')
    path = Path(NAME, 'resume', 'pairs.json')
    path.write_text(path.read_text().replace('"ranks": 1', '"ranks": 2'))
    said = f'the run in {NAME} was saved with 2 rank(s), and 1 would go on with it; expected 2 (torchrun --nproc-per-n'
    assert said in invoked(breakout_dqn_ddp, config, '--env-step', '200', '--resume', code=2)
    assert part_of(NAME, 'ranks') is None
    result = CliRunner().invoke(breakout_dqn_main.main, ['-c', str(config), '--resume'])
    assert isinstance(result.exception, ValueError) and said in str(result.exception)


def test_what_can_not_be_done_gets_a_sentence(here, monkeypatch):
    config = counting_config(here)
    said = invoked(breakout_dqn_ddp, config, '--env-step', '64', code=2)
    assert '--env-step is 64; expected more than the 64 steps of random play' in said
    assert '--resume found no saved run' in invoked(breakout_dqn_ddp, config, '--resume', code=2)
    waits = counting_config(here, (r'policy=dict\(\n', 'policy=dict(bp_update_sync=False,\n'))
    assert 'policy.bp_update_sync is False' in invoked(breakout_dqn_ddp, waits, code=2)
    monkeypatch.setenv('RANK', '0')
    monkeypatch.setenv('WORLD_SIZE', '2')
    said = invoked(breakout_dqn_ddp, config, code=2)
    assert re.search(r'but not MASTER_ADDR,\s+MASTER_PORT; expected all of them', said)
    assert not Path(NAME).exists()


def test_the_config_says_how_it_is_run():
    config = ROOT / 'configs' / 'breakout_dqn_ddp_config.py'
    with pytest.raises(AssertionError, match='torchrun --nproc-per-node 2 entry/breakout_dqn_ddp.py'):
        run([sys.executable, str(config)], ROOT)
