"""The fault suite: faults have the outcome that is promised; where one has not, or leaves something, it says so."""

import importlib.util
import json
import re
import subprocess
import sys

import psutil
import pytest

from helpers.processes import ROOT, wait_until, watched_by_nobody

FOLDER = ROOT / 'reliability'
RESULT = ROOT / 'docs' / 'results' / 'faults.json'
# One of each class, so chosen that each role has its turn with some class.
SAMPLE = [
    'SIGKILL/learner',
    'SIGKILL/background saver',
    'SIGTERM/whole run',
    'SIGINT/whole run',
    'SIGSTOP/env worker, overlapped run',
    'SIGSTOP, SIGCONT/env worker',
    'SIGKILL/display',
    'exception/window',
    'exception/emulator step',
    'exception/recorder',
    'hang/resize',
    'hang/encoder',
    'full/disk of the run',
    'read-only/disk of the videos',
    'slow/disk of the run',
    'slow/copies for saves',
    'clock set back/whole run',
    'clock set on/whole run',
    'second run/folder of a run',
    'truncated/checkpoint',
    'flipped bytes/buffer',
    'emptied/best score',
    'foreign/log of the run',
    'all damaged/checkpoints',
]
# What follows is put before ``faults.main``, which makes faults of a table of the test's own.
PROGRAM = """
import os, subprocess, sys, time
sys.path.insert(0, {folder!r})
import fault_case, faults
from fault_case import Seen
from fault_table import TABLE, Promise
{change}
faults.main({arguments!r}, standalone_mode=True)
"""


def suite(*arguments: str, change: str = '') -> subprocess.CompletedProcess:
    program = PROGRAM.format(folder=str(FOLDER), change=change, arguments=arguments)
    command = [sys.executable, '-c', program]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, env=watched_by_nobody())


def table() -> list:
    spec = importlib.util.spec_from_file_location('fault_table', FOLDER / 'fault_table.py')
    module = sys.modules['fault_table'] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TABLE


def named(pattern: str, text: str) -> list:
    return re.findall(pattern, text, re.M)


def test_faults_of_each_class_have_the_outcome_that_is_promised(tmp_path):
    assert {name.split('/')[0] for name in SAMPLE} == {promise.fault for promise in table()}
    out = tmp_path / 'faults.json'
    only = [option for name in SAMPLE for option in ('--only', name)]
    done = suite('--times', '1', '--seed', '1', '--out', str(out), *only)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-3000:]
    result = json.loads(out.read_text())
    assert [f'{row["fault"]}/{row["role"]}' for row in result['rows']] == sorted(
        SAMPLE, key=[f'{promise.fault}/{promise.role}' for promise in table()].index
    )
    assert result['kept'] == result['faults'] >= 1 and result['faults'] + result['skipped'] == len(SAMPLE)
    missing = {row['missing'] for row in result['rows'] if row['skipped']}
    if missing:
        pytest.skip(f'some faults need {" and ".join(sorted(missing))}; the others had their outcomes')


def test_a_promise_that_is_not_kept_fails_and_its_seed_repeats_it():
    change = """
faults.TABLE = [
    Promise('SIGKILL', 'encoder', 'stops', ''),
    Promise('SIGKILL', 'encoder', 'continues', '', message='never said'),
    Promise('SIGKILL', 'encoder', 'continues', '', silent='is given up'),
    Promise('SIGKILL', 'encoder', 'continues', '', message='is given up'),
]
"""
    done = suite('--times', '1', '--seed', '41', change=change)
    assert done.returncode == 1, done.stderr
    found = named(r'^SIGKILL/encoder, seed 41, .*\}: (.*)$', done.stdout)
    problems = [
        'it continues; promised is that it stops',
        'it does not say what is promised: never said',
        'it says what it is promised not to: is given up',
    ]
    assert sorted(found) == sorted(problems)
    assert len(named('as promised', done.stdout)) == 1 and '1 of 4 faults had the promised outcome' in done.stdout
    # the moment of each is one that its seed gives
    moments = set(named(r"seed 41, (\{'steps': \d+\})", done.stdout))
    again = suite('--times', '1', '--seed', '41', change=change)
    assert '--seed 41 --times 1' in done.stdout and len(moments) == 1
    assert set(named(r"seed 41, (\{'steps': \d+\})", again.stdout)) == moments


def test_whatever_a_fault_leaves_behind_fails_and_is_ended():
    change = """
fault_case.LEAVING_S, faults.CASE_LIMIT_S = 1.0, 8.0
def leave(what):
    def case(case):
        code = case.fork(what).wait()
        return Seen('continues', str(code))
    return case
def process():
    subprocess.Popen(['sleep', '98765'], start_new_session=True, stdout=subprocess.DEVNULL)
def shared_memory():
    open('/dev/shm/left_by_a_fault', 'w').close()
def temporary_file():
    open(os.path.join(os.environ['TMPDIR'], 'left_by_a_fault'), 'w').close()
def hang():
    process()
    time.sleep(1000)
def broken(case):
    process()
    raise KeyError('in the case')
faults.CASES = {('leaves', what.__name__): leave(what) for what in (process, shared_memory, temporary_file, hang)}
faults.CASES['leaves', 'broken'] = broken
def impossible(case):
    raise fault_case.CannotBeTried('a second moon')
faults.CASES['leaves', 'impossible'] = impossible
faults.CASES['leaves', 'nothing'] = leave(lambda: None)
faults.TABLE = [Promise(*name, 'continues', '') for name in faults.CASES]
"""
    done = suite('--times', '1', change=change)
    assert done.returncode == 1, done.stderr
    problems = dict(named(r'^leaves/(\w+), seed 0, .*?: (.*)$', done.stdout))
    assert re.match(r'left behind: process \d+ \(\w+\): sleep 98765', problems['process'])
    assert problems['temporary_file'] == 'left behind: temporary file left_by_a_fault'
    assert problems['hang'] == 'it was not over after 8 s' and problems['broken'].startswith('the case itself failed')
    if 'shared_memory' in problems:  # where this user has no mount namespace, what lies there may be another program's
        assert problems['shared_memory'] == 'left behind: shared memory left_by_a_fault'
    assert 'leaves/nothing, seed 0: continues, as promised' in done.stdout
    assert 'leaves/impossible, seed 0: left out, for want of a second moon' in done.stdout
    assert re.search(r'^[12] of 6 faults had .*; 1 could not be made here$', done.stdout, re.M)
    left = [process for process in psutil.process_iter(['cmdline']) if process.info['cmdline'] == ['sleep', '98765']]
    assert wait_until(lambda: not any(process.is_running() for process in left)), left


def test_a_suite_that_is_killed_leaves_no_process(tmp_path):
    program = PROGRAM.format(
        folder=str(FOLDER),
        change="""
def forever(case):
    case.fork(lambda: (subprocess.Popen(['sleep', '98764'], start_new_session=True), time.sleep(1000)))
    time.sleep(1000)
faults.CASES = {('never', 'ends'): forever}
faults.TABLE = [Promise('never', 'ends', 'continues', '')]
""",
        arguments=[],
    )

    def sleepers() -> list:
        return [
            process for process in psutil.process_iter(['cmdline']) if process.info['cmdline'] == ['sleep', '98764']
        ]

    suite = subprocess.Popen(
        [sys.executable, '-c', program],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**watched_by_nobody(), 'TMPDIR': str(tmp_path)},  # the folder of a suite that is killed stays
    )
    try:
        assert wait_until(sleepers, 240)
    finally:
        suite.kill()
        suite.wait()
    assert wait_until(lambda: not sleepers(), 20)


def test_an_unknown_class_gets_a_sentence():
    done = suite('--only', 'SIGHUP')
    assert done.returncode == 2 and '--only is SIGHUP; expected one of ' in done.stderr and 'SIGKILL' in done.stderr


def test_each_row_of_the_table_was_tried_ten_times_and_each_promise_kept():
    result = json.loads(RESULT.read_text())
    rows = {(row['fault'], row['role']): row for row in result['rows']}
    promises = {(promise.fault, promise.role): promise for promise in table()}
    assert len(promises) == len(table()) and set(rows) == set(promises)
    for name, row in rows.items():
        assert row['kept'] == row['tried'] >= 10, row
        assert (row['outcome'], row['promise']) == (promises[name].outcome, promises[name].promise)
    assert sum(row['tried'] for row in rows.values()) == result['faults'] >= 500
    assert rows['SIGKILL', 'whole run']['tried'] >= 50


def test_the_table_for_the_guide_has_each_promise_in_both_languages():
    printed = {}
    for language in ([], ['--chinese']):
        command = [sys.executable, str(FOLDER / 'fault_table.py'), *language]
        printed[bool(language)] = subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    assert len(printed[False]) == len(printed[True]) and all(line.count('|') == 5 for line in printed[True])
    for promise in table():
        row = f'| {promise.role} | .*| {promise.outcome} | {re.escape(promise.promise)} |'
        (line,) = [line for line in printed[False] if re.fullmatch(row.replace('|', r'\|'), line)]
        assert promise.fault in line
