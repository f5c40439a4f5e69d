"""Slurm's batch script, with programs of this file for Slurm, Ray and ``breakout``: stopped, requeued, cancelled."""

import os
import re
import signal
import sys

import pytest

from helpers.processes import ROOT, Command, environ_now

pytestmark = pytest.mark.process

# Counts env steps, saves when it is stopped, resumes from there; the others run what they are to start.
FAKES = dict(
    breakout=f"""#!{sys.executable}
import signal, sys, time
from pathlib import Path
options, stop, save = dict(zip(sys.argv[2:], sys.argv[3:])), [], Path('saved')
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
count = int(save.read_text()) if save.exists() else 0
print('from', count, options['--exp-name'], flush=True)
while count < int(options['--env-steps']) and not stop:
    time.sleep(0.05)
    count += 1
save.write_text(str(count))
print('saved', count, flush=True)
""",
    ray='#!/bin/bash\nwhile [[ $1 != -- ]]; do shift; done; shift; "$@"\n',
    srun='#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done; "$@"\n',
    scontrol='#!/bin/bash\n[[ $1 == requeue ]] && touch requeued || echo NodeAddr=127.0.0.1\n',
)


@pytest.mark.parametrize('number', [signal.SIGUSR1, signal.SIGTERM])
def test_a_job_is_saved_and_requeued_near_its_time_limit_only_and_resumed(tmp_path, number):
    for name, content in FAKES.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    of_slurm = dict(JOB_ID='7', JOB_NODELIST='n1', NNODES='1', CPUS_PER_TASK='2', JOB_NAME='limit')
    environ = {**environ_now(), **{f'SLURM_{name}': value for name, value in of_slurm.items()}}
    environ.update(PATH=f'{tmp_path}:{os.environ["PATH"]}', BREAKOUT_BIN=str(tmp_path), RAY_AUTH_TOKEN='a' * 64)
    words = ['bash', ROOT / 'deploy' / 'slurm' / 'breakout.sbatch', '--env-steps', '60']
    job = Command(words, tmp_path, environ)
    job.wait_for(lambda: 'from 0 experiments/limit' in job.text)
    assert job.end(number) == 0 and (tmp_path / 'requeued').exists() == (number == signal.SIGUSR1), job.text
    stopped = int(re.search(r'saved (\d+)', job.text)[1])
    again = Command(words, tmp_path, environ)
    assert again.process.wait() == 0 and f'from {stopped} ' in again.text and 'saved 60' in again.text and stopped < 60
