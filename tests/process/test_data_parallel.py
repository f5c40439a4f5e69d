"""Several ranks learn as one process does from their batches together, and begin, save, end and fail together."""

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

from breakout_env.agent.agent import load_agent
from breakout_env.cluster.data_parallel import SEEDS_APART
from breakout_env.run.save_list import LIST, saves_in
from breakout_env.utils.run_registry import look_up
from helpers.processes import BIN, ROOT, Command, free_port, run, wait_until
from helpers.ranks import POLICIES, SHORT_GAMES, counting_config, counts_of, learn, of_rank, work_as_rank
from helpers.runs import (  # noqa: F401
    N_SAMPLE,
    NAME,
    RANDOM,
    UPDATES,
    as_before,
    check_saves,
    config_in,
    cut_off,
    scalars,
    weights,
)

sys.path.append(str(ROOT / 'entry'))
import breakout_dqn_ddp
import breakout_dqn_main

ENTRY = str(ROOT / 'entry' / 'breakout_dqn_ddp.py')
TORCHRUN = [str(BIN / 'torchrun'), '--standalone', '--nproc-per-node', '2']
BUDGET = 2 * RANDOM + 20 * 2 * N_SAMPLE  # env steps of the small run

# ---------------------------------------------------------------- two processes, without games


@pytest.fixture(scope='module')
def two_ranks(tmp_path_factory) -> list:
    """What two processes that worked together found, by rank."""
    context = multiprocessing.get_context('spawn')
    results = [tmp_path_factory.mktemp('ranks') / f'{rank}.pt' for rank in range(2)]
    ports = [free_port(), free_port()]
    processes = [context.Process(target=work_as_rank, args=(rank, ports, results[rank])) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(150)
    assert [process.exitcode for process in processes] == [0, 0]
    return [torch.load(path, weights_only=True) for path in results]


@pytest.mark.parametrize('name', POLICIES)
def test_two_ranks_learn_as_one_process_does_from_both_batches(two_ranks, name):
    policy_class, weighted = POLICIES[name]
    gradients, after, start = learn(policy_class, weighted, [0, 1])
    for rank in two_ranks:
        rank_gradients, rank_after, rank_start = rank[name]
        assert torch.equal(rank_start, start)
        # another order of additions leaves rounding errors of the size of the largest gradients
        torch.testing.assert_close(rank_gradients, gradients, rtol=1e-4, atol=1e-5 * gradients.abs().max().item())
        # as in test_lean_dqn: Adam amplifies a gradient that is only rounding
        assert (rank_after - after).norm() < 0.003 * (after - start).norm()
    # one batch alone would have led elsewhere
    _, alone, _ = learn(policy_class, weighted, [0])
    assert (alone - after).norm() > 0.1 * (after - start).norm()


@pytest.mark.parametrize('name', [*POLICIES, 'bfloat16'])
def test_all_ranks_have_exactly_the_same_weights(two_ranks, name):
    for first, second in zip(two_ranks[0][name], two_ranks[1][name]):
        assert torch.equal(first, second)
    _, after, start = two_ranks[0][name]
    assert torch.isfinite(after).all() and not torch.equal(after, start)


def test_ranks_with_different_seeds_start_with_the_weights_of_the_first(two_ranks):
    assert two_ranks[0]['own random number'] != two_ranks[1]['own random number']
    assert torch.equal(two_ranks[0]['first weights'], two_ranks[1]['first weights'])


def test_log_shows_averages_over_all_ranks(two_ranks):
    losses = [loss for rank in two_ranks for loss in rank['losses']]
    assert len(set(losses)) == 6
    assert two_ranks[0]['shown loss'] == pytest.approx(sum(losses) / 6)


def test_all_ranks_receive_the_messages_of_each_rank(two_ranks):
    for rank in two_ranks:
        assert rank['backend'] == 'gloo'
        assert rank['any'] == (True, False, True)
        assert rank['sum'] == (2 * 10**12 + 1, 2)
        assert rank['mean'] == [0.5, 0.5]
        assert rank['gather'] == ['rank 0', 'rank 1'] and rank['each'] == [0, 10]
        assert rank['from_first'] == 'by rank 0'


def test_error_of_one_rank_ends_all_ranks_and_names_it(two_ranks):
    for failing in range(2):
        name, other = f'rank {failing} fails', 1 - failing
        assert two_ranks[failing][name] == ('IndexError', 'list index out of range')
        assert two_ranks[other][name] == ('RankFailed', f'rank {failing} ended: list index out of range')


def test_stopped_evaluation_keeps_no_rank_waiting(two_ranks):
    assert all(rank['stopped evaluation'] is None and rank['sum after that'] == (2,) for rank in two_ranks)


def test_rank_that_hangs_ends_the_others_after_the_timeout(two_ranks):
    seconds, message = two_ranks[0]['lost']
    assert 2.5 < seconds < 7
    assert message.startswith('rank 0 of 2 lost another one, which ended or did not answer within 3 seconds, and ends')


# ---------------------------------------------------------------- whole runs


def newest_iteration(folder: Path, rank: int) -> int:
    saves = saves_in(of_rank(folder, rank))
    return saves[0]['iteration'] if saves else -1


def torchrun(config: Path, *arguments: str) -> str:
    command = [*TORCHRUN, ENTRY, '-c', str(config), *arguments]
    return run(command, config.parent, 120, OMP_NUM_THREADS='1')


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> Path:
    """The folder in which torchrun trained two ranks, from the beginning to the end of their budget."""
    folder = tmp_path_factory.mktemp('trained')
    (folder / 'output').write_text(torchrun(counting_config(folder), '--env-step', str(BUDGET), '-s', '3'))
    return folder


def test_run_of_two_ranks_is_logged_evaluated_and_saved_as_one(trained):
    folder, output = trained / NAME, (trained / 'output').read_text()
    assert '2 rank(s) by gloo: 4 environments, batches of 16 transitions, learning rate 0.0001, 8 env steps' in output
    assert output.count('is used up.') == output.count('  evaluate:') == 1
    assert scalars(folder, 'total_loss') and scalars(folder, 'reward_mean')
    assert (folder / 'log' / 'progress.jsonl').exists()
    checkpoints = list((folder / 'ckpt').glob('*.pth.tar'))
    assert len(checkpoints) >= 4 and all(load_agent(checkpoint) for checkpoint in checkpoints)
    first, second = (
        weights(of_rank(folder, rank) / check_saves(of_rank(folder, rank))[0]['checkpoint']) for rank in range(2)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_each_rank_plays_and_stores_for_itself_and_env_steps_are_those_of_all(trained):
    folder, collected, evaluated = trained / NAME, counts_of(trained, 'collector'), counts_of(trained, 'evaluator')
    assert collected['0']['seeds'] == [3, 4] and collected['1']['seeds'] == [3 + SEEDS_APART, 4 + SEEDS_APART]
    assert list(evaluated) == ['0'] and evaluated['0']['seeds'] == [3]
    first, second = (saves_in(of_rank(folder, rank))[0] for rank in range(2))
    assert first['iteration'] == second['iteration'] > 0 and first['ranks'] == second['ranks'] == 2
    assert first['env_step'] == second['env_step'] == collected['0']['steps'] + collected['1']['steps'] >= BUDGET
    contents = [(of_rank(folder, rank) / save['buffer']).read_bytes() for rank, save in enumerate((first, second))]
    assert contents[0] != contents[1]


def test_run_of_two_ranks_restarts_stops_and_resumes_from_the_newest_save_of_both(trained):
    folder, (config,) = trained / NAME, trained.glob('*_config.py')
    ended = saves_in(folder)[0]
    # torchrun starts all ranks again when one is killed
    patient = ['env', 'TORCH_ELASTIC_SHUTDOWN_TIMEOUT=100']  # on a machine with other work
    arguments = ['-c', str(config), '--env-step', '1000000', '--resume']
    command = Command([*patient, *TORCHRUN, '--max-restarts', '1', ENTRY, *arguments], trained)
    command.wait_for(lambda: newest_iteration(folder, 1) > ended['iteration'] + 3 * UPDATES)
    assert f'Resuming {NAME} at {ended["iteration"]:,} updates and {ended["env_step"]:,} env steps' in command.text
    (victim,) = (rank for rank in psutil.Process(command.pid).children() if rank.environ()['RANK'] == '1')
    victim.kill()
    command.wait_for(lambda: command.text.count('Resuming') == 2)
    restarted_at = int(re.findall(r'Resuming .* at ([\d,]+) updates', command.text)[1].replace(',', ''))
    assert restarted_at > ended['iteration']
    command.wait_for(lambda: newest_iteration(folder, 1) > restarted_at + 3 * UPDATES)

    # a scheduler's signal goes to all processes, those of the environments included, at any time
    processes = psutil.Process(command.pid).children(recursive=True)
    assert len(processes) >= 2 + 2 * 2 + 1  # ranks, their environments, and the first one's for evaluations
    for process in [command.process, *processes]:
        process.send_signal(signal.SIGTERM)
    command.process.wait(110)
    assert wait_until(lambda: not any(process.is_running() for process in processes)), processes
    text = command.text.split('Resuming')[2]
    assert text.count('Stopping: ') == text.count('  resume:') == 1, text
    assert text.count('Traceback') == text.count('raise SignalException') == 1, text  # torchrun's own
    counts_of(trained, 'collector')
    stopped, others = (check_saves(of_rank(folder, rank)) for rank in range(2))
    assert len(stopped) == 2 and [save['iteration'] for save in stopped] == [save['iteration'] for save in others]

    # where one rank's save is damaged, all use the one before it
    cut_off(of_rank(folder, 1) / others[0]['buffer'])
    output = torchrun(config, '--env-step', str(stopped[1]['env_step'] + 100), '--resume', NAME)
    assert f'Resuming {NAME} at {stopped[1]["iteration"]:,} updates' in output
    assert 'trying the save before it' in output
    collected, newest = counts_of(trained, 'collector'), saves_in(folder)[0]
    assert newest['env_step'] == stopped[1]['env_step'] + collected['0']['steps'] + collected['1']['steps']
    assert newest['iteration'] == newest_iteration(folder, 1) > stopped[1]['iteration']


def test_killed_rank_ends_the_others_and_leaves_no_process(tmp_path):
    """Started without torchrun, which would kill the others itself. All ranks have a save of the same moment."""
    folder, config = tmp_path / NAME, config_in(tmp_path, 0, *SHORT_GAMES)
    place = ['env', 'WORLD_SIZE=2', 'MASTER_ADDR=127.0.0.1', f'MASTER_PORT={free_port()}']
    first, second = (
        Command([*place, f'RANK={rank}', sys.executable, ENTRY, '-c', str(config)], tmp_path) for rank in range(2)
    )
    second.wait_for(lambda: len(saves_in(of_rank(folder, 1))) == 2)
    workers = [worker for rank in (first, second) for worker in psutil.Process(rank.pid).children(recursive=True)]
    assert len(workers) >= 3  # two environments, and one to evaluate
    second.process.send_signal(signal.SIGKILL)
    killed_s = time.monotonic()
    assert first.process.wait(60) == 1, first.text
    assert time.monotonic() - killed_s < 30
    second.process.wait(10)
    assert 'rank 0 of 2 lost another one, which ended or did not answer within 1800 seconds' in first.text
    assert 'Traceback' not in first.text
    assert wait_until(lambda: not any(worker.is_running() for worker in workers)), workers
    of_first, of_second = ({save['iteration'] for save in check_saves(of_rank(folder, rank))} for rank in range(2))
    assert of_first & of_second


# ---------------------------------------------------------------- one process


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to run an entry in, in this process."""
    monkeypatch.chdir(tmp_path)
    for name in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT'):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def invoke(module, config: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(module.main, ['-c', str(config), *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_one_rank_learns_what_the_main_entry_learns_and_each_resumes_the_other(here):
    config = counting_config(here, (r'batch_size=8', 'batch_size=80'))  # more than random play gives
    output = invoke(breakout_dqn_ddp, config, '--env-step', '150')
    assert '1 rank(s) by gloo: 2 environments, batches of 80 transitions' in output
    assert not (here / NAME / 'ranks').exists() and not torch.distributed.is_initialized()
    of_rank_0 = saves_in(Path(NAME))[0]
    os.rename(NAME, 'alone')
    invoke(breakout_dqn_main, config, '--env-step', '150')
    of_main = saves_in(Path(NAME))[0]
    assert (of_rank_0['iteration'], of_rank_0['env_step']) == (of_main['iteration'], of_main['env_step'])
    learned, expected = weights(Path('alone', of_rank_0['checkpoint'])), weights(Path(NAME, of_main['checkpoint']))
    assert all(torch.equal(learned[name], expected[name]) for name in expected)
    assert 'Resuming alone at ' in invoke(breakout_dqn_main, config, '--env-step', '170', '--resume', 'alone')
    assert f'Resuming {NAME} at ' in invoke(breakout_dqn_ddp, config, '--env-step', '170', '--resume')


def test_run_of_another_number_of_ranks_is_refused(here):
    config = counting_config(here)
    invoke(breakout_dqn_ddp, config, '--env-step', '100')
    path = Path(NAME, LIST)
    path.write_text(path.read_text().replace('"ranks": 1', '"ranks": 2'))
    message = f'the run in {NAME} was saved with 2 rank(s), and 1 would resume it; expected 2 (torchrun --nproc-per-n'
    assert message in invoke(breakout_dqn_ddp, config, '--env-step', '200', '--resume', code=2)
    assert look_up(NAME, 'ranks') is None
    result = CliRunner().invoke(breakout_dqn_main.main, ['-c', str(config), '--resume'])
    assert isinstance(result.exception, ValueError) and message in str(result.exception)


def test_wrong_budget_resume_config_and_environment_are_refused(here, monkeypatch):
    config = counting_config(here)
    message = invoke(breakout_dqn_ddp, config, '--env-step', '64', code=2)
    assert '--env-steps is 64; expected more than the 64 steps of random play' in message
    assert '--resume found no saved run' in invoke(breakout_dqn_ddp, config, '--resume', code=2)
    too_early = counting_config(here, (r'policy=dict\(\n', 'policy=dict(bp_update_sync=False,\n'))
    assert 'policy.bp_update_sync is False' in invoke(breakout_dqn_ddp, too_early, code=2)
    monkeypatch.setenv('RANK', '0')
    monkeypatch.setenv('WORLD_SIZE', '2')
    message = invoke(breakout_dqn_ddp, config, code=2)
    assert re.search(r'but not MASTER_ADDR,\s+MASTER_PORT; expected all of them', message)
    assert not Path(NAME).exists()


def test_config_run_as_a_program_names_the_command():
    config = ROOT / 'configs' / 'breakout_dqn_ddp_config.py'
    with pytest.raises(AssertionError, match='torchrun --nproc-per-node 2 entry/breakout_dqn_ddp.py'):
        run([sys.executable, str(config)], ROOT)
