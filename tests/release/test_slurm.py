"""The batch scripts on a real Slurm, started here for them: stopped, requeued, resumed, cancelled."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.processes import ROOT, wait_until

ONE_NODE, SEVERAL_NODES = (ROOT / 'deploy' / 'slurm' / f'{name}.sbatch' for name in ('one_node', 'several_nodes'))

# Ends as the entry does, and takes seconds: it counts, saves when it is stopped, goes on from there.
COUNTER = """
import json, signal, sys, time
from pathlib import Path
options = dict(zip(sys.argv[1:], sys.argv[2:]))
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
if options.get('--role') == 'collector':
    print('collecting for', options['--attach-to'], flush=True)
    while not stop:
        time.sleep(0.05)
    sys.exit()
save = Path(options['--exp-name'], 'save.json')
save.parent.mkdir(parents=True, exist_ok=True)
count = json.loads(save.read_text()) if save.exists() else 0
print('from', count, flush=True)
while count < int(options['--env-step']) and not stop:
    time.sleep(0.05)
    count += 1
time.sleep(0.3)
save.write_text(json.dumps(count))
print('saved', count, flush=True)
"""

SLURM_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
KillWait=5
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[2]}] CPUs=8 RealMemory=64000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def three_free_ports() -> list:
    """Two of them in a row, as Slurm wants nodes of one machine to have them."""
    for first in range(21000, 30000, 3):
        sockets = [socket.socket() for _ in range(3)]
        try:
            for number, listener in enumerate(sockets):
                listener.bind(('127.0.0.1', first + number))
            return list(range(first, first + 3))
        except OSError:
            continue
        finally:
            for listener in sockets:
                listener.close()
    raise AssertionError('no free ports')


@pytest.fixture(scope='module')
def slurm(tmp_path_factory):
    """A Slurm of two nodes, both of them this machine, and a folder to submit from."""
    if shutil.which('slurmctld') is None or shutil.which('slurmd') is None:
        pytest.skip('no Slurm on this machine (apt-get install slurm-wlm)')
    folder = tmp_path_factory.mktemp('slurm')
    for name in ('state', 'spool-n1', 'spool-n2', 'site', 'site/entry'):
        (folder / name).mkdir()
    (folder / 'site' / 'entry' / 'breakout_dqn_dist.py').write_text(COUNTER)
    host, user = socket.gethostname().split('.')[0], subprocess.check_output(['id', '-un'], text=True).strip()
    content = SLURM_CONF.format(host=host, user=user, folder=folder, ports=three_free_ports())
    (folder / 'slurm.conf').write_text(content)
    environ = {**os.environ, 'SLURM_CONF': str(folder / 'slurm.conf'), 'BREAKOUT_PYTHON': sys.executable}
    daemons = []

    def call(*command) -> str:
        done = subprocess.run(command, cwd=folder / 'site', env=environ, capture_output=True, text=True, timeout=60)
        return done.stdout.strip() or done.stderr

    try:
        for command in (['slurmctld', '-D', '-i'], ['slurmd', '-D', '-N', 'n1'], ['slurmd', '-D', '-N', 'n2']):
            daemons.append(subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        logs = folder.glob('*.log')
        is_up = wait_until(lambda: call('sinfo', '--noheader', '--format=%D %T') == '2 idle', 30)
        assert is_up, '\n'.join(log.read_text()[-2000:] for log in logs)
        yield SimpleNamespace(call=call, site=folder / 'site')
        call('scancel', '--user', user)
        wait_until(lambda: not call('squeue', '--noheader'), 20)
    finally:
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()


class Job(object):
    """A job of the Slurm above, and what is in its log."""

    def __init__(self, slurm, script: Path, name: str, steps: int, *options: str) -> None:
        self._slurm = slurm
        resources = ['--cpus-per-task=2', '--mem=100', f'--job-name={name}', *options]
        self.number = slurm.call('sbatch', '--parsable', *resources, script, '--env-step', str(steps))
        assert self.number.isdigit(), self.number
        self.log = slurm.site / f'{name}-{self.number}.log'

    def says(self, text: str) -> bool:
        return wait_until(lambda: self.log.exists() and text in self.log.read_text(), 30)

    @property
    def state(self) -> str:
        return re.search(r'JobState=(\w+)', self._slurm.call('scontrol', 'show', 'job', self.number))[1]


def test_a_job_at_its_time_limit_saves_goes_back_to_the_queue_and_goes_on(slurm):
    # loopback is all that is sure to be there; both nodes of this Slurm are here
    several = ['--export=ALL,BREAKOUT_DIST_ADDRESS=127.0.0.1']
    pair = [Job(slurm, ONE_NODE, 'one', 60), Job(slurm, SEVERAL_NODES, 'several', 60, *several)]
    assert pair[1].says('collecting for tcp://127.0.0.1:2')
    for job in pair:
        assert job.says('from 0'), job.log.read_text()
        slurm.call('scancel', '--batch', '--signal=USR1', job.number)  # what Slurm itself does before the limit
    for job in pair:
        assert job.says('goes back to the queue'), job.log.read_text()
    time.sleep(1)  # until Slurm is through with their first lives
    for job in pair:
        assert wait_until(lambda job=job: job.state != 'COMPLETING')
        slurm.call('scontrol', 'update', f'JobId={job.number}', 'StartTime=now')  # it waits a little for its second
    for job in pair:
        assert job.says('saved 60') and wait_until(lambda job=job: job.state == 'COMPLETED'), job.log.read_text()
        saved = re.findall(r'(from|saved) (\d+)', job.log.read_text())
        assert [what for what, _ in saved] == ['from', 'saved', 'from', 'saved']
        assert saved[0][1] == '0' and 0 < int(saved[1][1]) < 60 and saved[2][1] == saved[1][1]
        assert 'requeued 1 times' in job.log.read_text()


@pytest.mark.parametrize('how', [[], ['--batch', '--signal=USR2']], ids=['cancelled', 'stopped'])
def test_a_job_that_is_ended_saves_and_does_not_come_back(how, slurm):
    name = 'stopped' if how else 'cancelled'
    job = Job(slurm, ONE_NODE, name, 10_000)
    assert job.says('from 0')
    slurm.call('scancel', *how, job.number)
    assert job.says('saved')
    assert wait_until(lambda: job.state in ('COMPLETED', 'CANCELLED'))
    assert 'goes back' not in job.log.read_text()
    assert 0 < json.loads((slurm.site / 'experiments' / name / 'save.json').read_text()) < 10_000
