"""The batch script on a real Slurm, started here for it: stopped, requeued, resumed, cancelled."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from helpers.processes import ROOT, wait_until

SCRIPT = ROOT / 'deploy' / 'slurm' / 'breakout.sbatch'

# In place of `breakout`: counts env steps, saves when it is stopped, resumes from there. In place of `ray`
# which would start a cluster: the same command line, which runs what follows `--`.
BREAKOUT = """#!{python}
import json, signal, sys, time
from pathlib import Path
options = dict(zip(sys.argv[2:], sys.argv[3:]))
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
save = Path(options['--exp-name'], 'save.json')
save.parent.mkdir(parents=True, exist_ok=True)
count = json.loads(save.read_text()) if save.exists() else 0
print('from', count, flush=True)
while count < int(options['--env-steps']) and not stop:
    time.sleep(0.05)
    count += 1
save.write_text(json.dumps(count))
print('saved', count, flush=True)
"""
RAY = """#!/bin/bash
echo "$@"
[[ $1 == symmetric-run ]] || exit 0
while [[ $1 != -- ]]; do shift; done
shift
"$@"
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
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 RealMemory=64000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def two_free_ports() -> list:
    with socket.socket() as one, socket.socket() as other:
        for listener in (one, other):
            listener.bind(('127.0.0.1', 0))
        return [one.getsockname()[1], other.getsockname()[1]]


@pytest.fixture(scope='module')
def slurm(tmp_path_factory):
    """A Slurm of one node, this machine, and a folder to submit from."""
    if shutil.which('slurmctld') is None or shutil.which('slurmd') is None:
        pytest.skip('no Slurm on this machine (apt-get install slurm-wlm)')
    folder = tmp_path_factory.mktemp('slurm')
    for name in ('state', 'spool-n1', 'site', 'bin'):
        (folder / name).mkdir()
    for name, content in (('breakout', BREAKOUT.format(python=sys.executable)), ('ray', RAY)):
        (folder / 'bin' / name).write_text(content)
        (folder / 'bin' / name).chmod(0o755)
    host, user = socket.gethostname().split('.')[0], subprocess.check_output(['id', '-un'], text=True).strip()
    content = SLURM_CONF.format(host=host, user=user, folder=folder, ports=two_free_ports())
    (folder / 'slurm.conf').write_text(content)
    environ = {
        **os.environ,
        'SLURM_CONF': str(folder / 'slurm.conf'),
        'BREAKOUT_BIN': str(folder / 'bin'),
        'RAY_AUTH_TOKEN': 'a' * 64,
    }
    daemons = []

    def call(*command) -> str:
        done = subprocess.run(command, cwd=folder / 'site', env=environ, capture_output=True, text=True, timeout=60)
        return done.stdout.strip() or done.stderr

    try:
        for command in (['slurmctld', '-D', '-i'], ['slurmd', '-D', '-N', 'n1']):
            daemons.append(subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        logs = folder.glob('*.log')
        is_up = wait_until(lambda: call('sinfo', '--noheader', '--format=%D %T') == '1 idle', 30)
        assert is_up, '\n'.join(log.read_text()[-2000:] for log in logs)
        yield SimpleNamespace(call=call, site=folder / 'site')
        call('scancel', '--user', user)
        wait_until(lambda: not call('squeue', '--noheader'), 20)
    finally:
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in daemons:
            daemon.wait(60)


class Job(object):
    """A job of the Slurm above, and its log."""

    def __init__(self, slurm, name: str, steps: int) -> None:
        self._slurm = slurm
        resources = ['--cpus-per-task=2', '--mem=100', f'--job-name={name}']
        self.number = slurm.call('sbatch', '--parsable', *resources, SCRIPT, '--env-steps', str(steps))
        assert self.number.isdigit(), self.number
        self.path = slurm.site / f'{name}-{self.number}.log'

    @property
    def log(self) -> str:
        return self.path.read_text() if self.path.exists() else ''

    def says(self, text: str) -> bool:
        return wait_until(lambda: text in self.log, 30)

    @property
    def state(self) -> str:
        return re.search(r'JobState=(\w+)', self._slurm.call('scontrol', 'show', 'job', self.number))[1]


def test_a_job_near_its_time_limit_is_saved_requeued_and_resumed(slurm):
    job = Job(slurm, 'limit', 60)
    assert job.says('from 0'), job.log
    slurm.call('scancel', '--batch', '--signal=USR1', job.number)  # what Slurm itself does before the limit
    assert job.says('goes back to the queue'), job.log

    def is_back() -> bool:
        slurm.call('scontrol', 'update', f'JobId={job.number}', 'StartTime=now')  # Slurm waits two minutes by itself
        return 'requeued 1 times' in job.log

    assert wait_until(is_back, 60), job.log
    assert job.says('saved 60') and wait_until(lambda: job.state == 'COMPLETED'), job.log
    (first, _), (_, stopped), (_, resumed), (_, last) = re.findall(r'(from|saved) (\d+)', job.log)
    assert first == 'from' and 0 < int(stopped) < 60 and resumed == stopped and last == '60'
    assert '--min-nodes 1' in job.log


def test_a_cancelled_job_is_saved_and_not_requeued(slurm):
    job = Job(slurm, 'cancelled', 10_000)
    assert job.says('from 0'), job.log
    slurm.call('scancel', '--batch', '--signal=TERM', job.number)
    assert job.says('saved'), job.log
    assert wait_until(lambda: job.state in ('COMPLETED', 'CANCELLED'))
    assert 'goes back' not in job.log
    assert 0 < json.loads((slurm.site / 'experiments' / 'cancelled' / 'save.json').read_text()) < 10_000
