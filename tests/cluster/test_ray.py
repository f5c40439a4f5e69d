"""Collectors on Ray: real actors, nodes and kills on this machine."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch

from helpers.processes import ROOT, Command, run, wait_until
from helpers.runs import NAME, SMALL, check_saves, check_trained, config_in, ding_serial, weights, with_values

pytestmark = pytest.mark.process

pytest.importorskip('ray', reason="pip install 'ray>=2.54'")
ENTRY = [sys.executable, str(ROOT / 'entry' / 'on_ray.py')]
NODES = """
import sys
from ray.cluster_utils import Cluster
cluster, nodes = Cluster(initialize_head=True, head_node_args=dict(num_cpus=2)), []
print(cluster.address, flush=True)
for line in sys.stdin:
    if line == 'add\\n':
        nodes.append(cluster.add_node(num_cpus=1))
    else:
        cluster.remove_node(nodes.pop(), allow_graceful=False)
    print('done', flush=True)
cluster.shutdown()
"""


@pytest.fixture(autouse=True)
def ray_folder(monkeypatch) -> Iterator[Path]:
    """Ray's sessions and token in a folder of the test; no process of Ray is left when it is done."""
    folder = Path(tempfile.mkdtemp(prefix='ray-', dir='/tmp'))  # short: a socket's path has at most 107 bytes
    monkeypatch.setenv('RAY_TMPDIR', str(folder))
    monkeypatch.setenv('RAY_AUTH_MODE', 'token')
    monkeypatch.setenv('RAY_AUTH_TOKEN', 'a' * 64)
    # Ray's agents try so long to reach a head that has gone; a minute by default
    monkeypatch.setenv('RAY_gcs_rpc_server_reconnect_timeout_s', '5')
    yield folder
    left = [] if wait_until(lambda: not processes_of(folder)) else processes_of(folder)
    for process in left:
        process.kill()
    shutil.rmtree(folder)
    assert not left


def processes_of(folder: Path) -> list[psutil.Process]:
    """Processes of the Ray with its files in this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has ended
            files = [file.path for file in process.open_files()]
            if process.pid != os.getpid() and any(str(folder) in text for text in (*process.cmdline(), *files)):
                found.append(process)
    return found


def collectors_of(folder: Path) -> list[psutil.Process]:
    """The actors, which are children of Ray's daemon; the processes of their environments have the same title."""
    daemons = {process.pid for process in processes_of(folder) if process.name() == 'raylet'}
    found = []
    for process in processes_of(folder):
        with contextlib.suppress(psutil.Error):
            if process.ppid() in daemons and 'CollectorActor' in ''.join(process.cmdline()[:1]):  # a zombie has none
                found.append(process)
    return found


def training(config: Path, env_step: int, *more: str) -> Command:
    return Command([*ENTRY, '-c', str(config), '--env-step', str(env_step), *more], config.parent)


def env_steps(folder: Path) -> int:
    """As the newest row of the run's log has it."""
    path = folder / NAME / 'log' / 'progress.jsonl'
    return json.loads(path.read_text().splitlines()[-1])['env_step'] if path.exists() else 0


@pytest.fixture
def cluster() -> Iterator[tuple[str, Callable[[str], None]]]:
    """The address of a cluster of one node with 2 CPUs, and a function that adds or removes one of 1 CPU."""
    with subprocess.Popen(
        [sys.executable, '-c', NODES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as nodes:

        def change(what: str) -> None:
            nodes.stdin.write(f'{what}\n')
            nodes.stdin.flush()
            assert nodes.stdout.readline() == 'done\n'

        yield nodes.stdout.readline().strip(), change
        nodes.stdin.close()


def test_a_killed_learner_leaves_no_process_and_its_run_resumes(tmp_path, ray_folder):
    config = config_in(tmp_path, 1.0)
    command = training(config, 10**6, '--collectors', '1')
    command.wait_for(lambda: (tmp_path / NAME / 'resume' / 'pairs.json').exists())
    connections = [c for process in processes_of(ray_folder) for c in process.net_connections('inet')]
    listening = {c.laddr.ip.rpartition(':')[2] for c in connections if c.status == psutil.CONN_LISTEN}
    assert listening == {'127.0.0.1'}
    command.process.kill()
    command.process.wait()
    assert wait_until(lambda: not processes_of(ray_folder)), processes_of(ray_folder)
    (killed, *_) = check_saves(tmp_path / NAME)
    run(ding_serial(config, killed['env_step'] + 200), tmp_path)
    (alone, *_) = check_saves(tmp_path / NAME)
    assert alone['iteration'] > killed['iteration']
    budget = alone['env_step'] + 200
    resumed = training(config, budget, '--collectors', '2', '--resume')
    assert resumed.process.wait() == 0 and f'The budget of {budget:,} env steps is used up' in resumed.text
    assert 'Evaluated at' in resumed.text
    (back, *_) = check_saves(tmp_path / NAME)
    assert back['env_step'] >= budget
    check_trained(tmp_path / NAME)


def ppo_in(folder: Path) -> Path:
    """The default recipe in small."""
    folder.mkdir(exist_ok=True)
    return with_values(ROOT / 'configs' / 'breakout_ppo_config.py', folder, {**SMALL, 'exp_name': NAME})


def test_ppo_with_the_same_collectors_is_repeatable(tmp_path):
    learned = []
    for folder in (tmp_path / 'one', tmp_path / 'other'):
        assert training(ppo_in(folder), 80, '--collectors', '2').process.wait() == 0
        (save, *_) = check_saves(folder / NAME)
        assert save['env_step'] == 80
        learned.append(weights(folder / NAME / save['checkpoint']))
    assert all(torch.equal(weight, learned[1][name]) for name, weight in learned[0].items())


def test_a_run_goes_on_without_killed_collectors_and_resumes(tmp_path, ray_folder, monkeypatch):
    monkeypatch.setenv('TMPDIR', str(ray_folder))
    for name in ('breakout_env', 'ding', 'gym', 'ale_py'):  # in the current folder, where the workers do not look
        (tmp_path / name).mkdir()
        (tmp_path / name / '__init__.py').write_text("raise ImportError('not the installed one')")
    words = [*ENTRY, '-c', str(ppo_in(tmp_path / 'config')), '--collectors', '2', '--env-step']
    command = Command([*words, str(10**6)], tmp_path)
    for kills in (1, 2):
        steps = env_steps(tmp_path)
        command.wait_for(lambda steps=steps: env_steps(tmp_path) > steps + 80 and len(collectors_of(ray_folder)) == 2)
        collectors_of(ray_folder)[0].kill()
        command.wait_for(lambda kills=kills: command.text.count('what it was playing is lost') == kills)
    assert command.end(signal.SIGTERM) == 0, command.text
    assert not list(ray_folder.glob('breakout_actor_*'))
    (saved, *_) = check_saves(tmp_path / NAME)
    budget = saved['env_step'] + 80
    resumed = Command([*words, str(budget), '--resume'], tmp_path)
    assert resumed.process.wait() == 0, resumed.text
    (save, *_) = check_saves(tmp_path / NAME)
    assert save['env_step'] == budget


def test_collectors_follow_nodes_that_join_and_leave_a_cluster(tmp_path, ray_folder, cluster):
    address, change = cluster
    config = config_in(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('RAY_AUTH_TOKEN', 'b' * 64)
        refused = training(config, 400, '--collectors', '1', '--ray', address)
        assert refused.process.wait() == 1, refused.text
    assert 'its token in RAY_AUTH_TOKEN' in refused.text and 'Traceback' not in refused.text
    command = training(config, 10**6, '--collectors', 'auto', '--ray', address)
    command.wait_for(lambda: len(collectors_of(ray_folder)) == 1)
    change('add')
    command.wait_for(lambda: len(collectors_of(ray_folder)) == 2)
    change('remove')
    command.wait_for(lambda: '1 collectors from here on, 2 before: the cluster has CPUs for 1' in command.text)
    steps = env_steps(tmp_path)
    command.wait_for(lambda: env_steps(tmp_path) > steps)
    assert command.end(signal.SIGTERM) == 0, command.text
    assert check_saves(tmp_path / NAME)
