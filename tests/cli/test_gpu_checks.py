"""``breakout doctor --gpu`` compares a device with the CPU; here the device is a CPU, too."""

import json
from functools import partial

import pytest
from click.testing import CliRunner

from breakout_env.cli import gpu_checks, main
from breakout_env.cli.doctor import Check, Finding
from breakout_env.replay import size_check
from breakout_env.utils.memory_limits import Room


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(gpu_checks, 'UPDATES', 3)


@pytest.mark.parametrize(
    'look',
    [
        *(partial(gpu_checks.same_updates, kind) for kind in gpu_checks.POLICIES),
        partial(gpu_checks.same_updates, 'lean_dqn', 'bfloat16'),
        *(partial(gpu_checks.same_actions, kind) for kind in gpu_checks.FROM_ROLLOUTS),
        gpu_checks.same_batches,
        partial(gpu_checks.saves_fit, 'lean_dqn'),
        *(partial(gpu_checks.saves_fit, kind) for kind in gpu_checks.FROM_ROLLOUTS),
        partial(gpu_checks.level_memory, 25, allocated=lambda: 0),
        partial(gpu_checks.frames_of_a_million, count=1000),
    ],
    ids=lambda look: f'{getattr(look, "func", look).__name__} {getattr(look, "args", "")}',
)
def test_a_device_that_computes_like_a_cpu_passes(look):
    finding = look(device='cpu')
    assert finding.state == 'ok' and finding.found


@pytest.mark.parametrize('look', [gpu_checks.same_updates, gpu_checks.same_actions, gpu_checks.saves_fit])
def test_a_device_that_computes_something_else_fails(monkeypatch, look):
    # weights of another seed on the 'device', whose name has a number
    make, seeds = gpu_checks.policy_on, dict(cpu=0)
    monkeypatch.setattr(
        gpu_checks, 'policy_on', lambda device, kind, seed=0, **o: make('cpu', kind, seed + seeds.get(device, 5), **o)
    )
    if look is gpu_checks.saves_fit:  # loading changes nothing
        monkeypatch.setattr(gpu_checks.POLICY_REGISTRY.get('lean_dqn'), '_load_state_dict_learn', lambda *args: None)
    assert look('lean_dqn', device='cpu:0').state == 'fails'


def test_growing_and_kept_memory_fail():
    for readings in ([0, 2**21], [0, 0, 2**21]):
        steps = iter([0, 0, *readings, *[readings[-1]] * 9])
        assert gpu_checks.level_memory(21, 'cpu', lambda: next(steps)).state == 'fails'  # noqa: B023


def test_updates_that_wait_fail(monkeypatch):
    modes = []
    monkeypatch.setattr(gpu_checks.torch.cuda, 'set_sync_debug_mode', modes.append)
    finding = gpu_checks.no_waiting('lean_dqn', 'device', 'cpu')
    assert modes == ['error', 'default']
    assert finding.state == 'fails' and 'not detected' in finding.found  # as nothing waits for a CPU


def test_a_buffer_without_room_is_refused(monkeypatch):
    monkeypatch.setattr(gpu_checks, 'gpu_room', lambda device: Room(4 * 10**9, 4 * 10**9, f'the GPU {device}'))
    monkeypatch.setattr(size_check, 'gpu_room', lambda device: Room(4 * 10**9, 4 * 10**9, f'the GPU {device}'))
    assert 'of 4.00 GB (the GPU cuda)' in gpu_checks.full_gpu_is_refused().found


def test_without_a_gpu_each_row_says_so_and_nothing_fails():
    result = CliRunner().invoke(main, ['doctor', '--gpu', '--json'])
    rows = json.loads(result.stdout)
    assert result.exit_code == 0 and len(rows) == len(gpu_checks.CHECKS)
    assert {row['state'] for row in rows} == {'not applicable'}
    assert all(row['found'].startswith('needs a GPU: ') for row in rows)


def test_rows_pass_or_fail():
    checks = [Check('well', lambda: Finding('ok', 'yes')), Check('ill', lambda: 1 / 0)]
    assert [row.state for row in gpu_checks.gpu_rows(checks)] == ['pass', 'fail']
