"""The job files in deploy/ keep to their linters and schemas, agree with the entry they start, and end in order."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import breakout_env
from breakout_env.distributed import launcher
from helpers.processes import BIN, ROOT, run, wait_until

DEPLOY = ROOT / 'deploy'
ONE_NODE, SEVERAL_NODES = (DEPLOY / 'slurm' / f'{name}.sbatch' for name in ('one_node', 'several_nodes'))
MANIFEST = DEPLOY / 'kubernetes' / 'breakout.yaml'
DOCKERFILE = DEPLOY / 'Dockerfile'
ROLE = DEPLOY / 'role.sh'


@pytest.fixture(scope='module')
def entry():
    sys.path.insert(0, str(ROOT / 'entry'))
    yield importlib.import_module('breakout_dqn_dist')
    sys.path.remove(str(ROOT / 'entry'))


@pytest.fixture(scope='module')
def steps():
    """What runs the Dockerfile's steps where there is no engine."""
    sys.path.insert(0, str(ROOT / 'tools'))
    yield importlib.import_module('run_dockerfile')
    sys.path.remove(str(ROOT / 'tools'))


@pytest.fixture(scope='module')
def manifest():
    documents = list(yaml.safe_load_all(MANIFEST.read_text()))
    named = {(document['kind'], document['metadata']['name']): document for document in documents}
    assert len(named) == len(documents)
    return named


def jobs(manifest):
    """Each Job's own part and its pods' by the role that they play."""
    found = {name.removeprefix('breakout-'): job['spec'] for (kind, name), job in manifest.items() if kind == 'Job'}
    assert set(found) == {'learner', 'evaluator', 'collector'}
    return {role: (job, job['template']['spec']) for role, job in found.items()}


# ------------------------------------------------------------------------------------------------ linters and schemas


@pytest.mark.parametrize('path', [ONE_NODE, SEVERAL_NODES, ROLE], ids=lambda path: path.name)
def test_shell_scripts_keep_to_shellcheck(path, tmp_path):
    run([BIN / 'shellcheck', path], tmp_path)


def test_the_dockerfile_keeps_to_hadolint(tmp_path):
    run([BIN / 'hadolint', DOCKERFILE], tmp_path)


def test_the_manifest_keeps_to_yamllint(tmp_path):
    run([BIN / 'yamllint', '--strict', MANIFEST], tmp_path)


# the oldest that the manifest names, and the newest that the validator knows
@pytest.mark.parametrize('version', [['--kubernetes-version', '1.29'], []], ids=['oldest', 'newest'])
def test_the_manifest_keeps_to_the_schemas_of_kubernetes(version, manifest, tmp_path):
    printed = run([BIN / 'kubernetes-validate', '--strict', *version, MANIFEST], tmp_path)
    assert printed.count(' passed ') == len(manifest)


# ------------------------------------------------------------------------------------------- what has to agree: Slurm


def test_batch_scripts_give_the_entry_options_that_it_has(entry, tmp_path):
    """The scripts, run here with a Python that notes what it is to run, and Slurm's commands in their shortest form."""
    (tmp_path / 'entry').mkdir()
    (tmp_path / 'entry' / 'breakout_dqn_dist.py').touch()
    note = '#!/bin/sh\nfor word; do printf "%s\\0" "$word"; done > "$$.command"\n'
    commands = dict(
        python=note,
        # as Slurm does: what comes after its own options
        srun='#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n',
        sinfo='#!/bin/sh\necho 192.0.2.7\n',
        scancel='#!/bin/sh\n',
    )
    for name, content in commands.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    slurm = dict(
        SLURM_JOB_ID='123',
        SLURM_JOB_NAME='seed_1',
        SLURM_JOB_NODELIST='a[1-3]',
        SLURM_NNODES='3',
        SLURMD_NODENAME='a1',
        SLURM_CPUS_PER_TASK='8',
    )
    environ = dict(BREAKOUT_PYTHON=str(tmp_path / 'python'), PATH=f'{tmp_path}:{os.environ["PATH"]}', **slurm)
    noted = []
    for script in (ONE_NODE, SEVERAL_NODES):
        run(['bash', script, '--env-step', '20000', '--seed', '1'], tmp_path, **environ)
        for path in tmp_path.glob('*.command'):
            words = path.read_text().split('\0')[:-1]
            path.unlink()
            assert words[:2] == ['-u', 'entry/breakout_dqn_dist.py']
            words = [str(ROOT / word) if word.startswith('configs/') else word for word in words[2:]]
            noted.append(entry.program.make_context('breakout_dqn_dist', words).params)
    one, several, collectors = sorted(noted, key=lambda options: (options['role'] != 'all', options['port'] or 0))
    for options in noted:
        assert (options['env_step'], options['seed'], options['parallel_workers']) == (20000, 1, 8)
    for options in (one, several):
        assert (options['role'], options['auto_resume'], options['exp_name']) == ('all', True, 'experiments/seed_1')
    assert one['address'] == '127.0.0.1' and several['address'] == '192.0.2.7'
    assert collectors['role'] == 'collector'
    assert collectors['attach_to'] == f'tcp://192.0.2.7:{several["port"]}'


@pytest.mark.parametrize('script', [ONE_NODE, SEVERAL_NODES], ids=lambda path: path.name)
def test_a_batch_job_has_time_to_save_goes_back_to_the_queue_and_keeps_its_log(script):
    options = dict(re.findall(r'^#SBATCH --([\w-]+)=?(.*)$', script.read_text(), re.M))
    assert 'requeue' in options and options['open-mode'] == 'append'
    assert options['dependency'] == 'singleton'  # a name is a run, and a run has one learner
    for_whom, number_and_seconds = options['signal'].split(':')
    number, seconds = number_and_seconds.split('@')
    assert (for_whom, number) == ('B', 'USR1') and "trap 'stop USR1' USR1" in script.read_text()
    assert int(seconds) > 2 * (launcher._SAVE_S + launcher._END_S)  # Slurm's clock is up to a minute off


def test_several_nodes_are_not_opened_on_loopback_by_mistake(tmp_path):
    (tmp_path / 'entry').mkdir()
    (tmp_path / 'entry' / 'breakout_dqn_dist.py').touch()
    (tmp_path / 'sinfo').write_text('#!/bin/sh\necho 127.0.1.1\n')
    (tmp_path / 'sinfo').chmod(0o755)
    environ = {**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'BREAKOUT_PYTHON': sys.executable}
    environ.update(SLURM_NNODES='2', SLURMD_NODENAME='a1', SLURM_JOB_ID='1')
    done = subprocess.run(['bash', SEVERAL_NODES], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 2
    assert "finds '127.0.1.1' as its own address" in done.stderr and 'set BREAKOUT_DIST_ADDRESS' in done.stderr


# -------------------------------------------------------------------------------------- what has to agree: Kubernetes


def test_roles_on_kubernetes_are_given_options_that_the_entry_has(entry, manifest, monkeypatch):
    for name, value in manifest['ConfigMap', 'breakout-options']['data'].items():
        monkeypatch.setenv(name, value.replace('/opt/source', str(ROOT)))
        option = name.removeprefix('BREAKOUT_DIST_').lower()
        assert option in {parameter.name for parameter in entry.program.params}, name
    for role, (_, pod) in jobs(manifest).items():
        (container,) = pod['containers']
        assert 'command' not in container  # role.sh is the image's, and has to be in charge
        options = entry.program.make_context('breakout_dqn_dist', list(container['args'])).params
        assert (options['role'], options['env_step'], options['parallel_workers']) == (role, 10_000_000, 1)
        assert options['exp_name'] == 'experiments/breakout_dqn_dist'
        assert options['auto_resume'] == (role == 'learner')


def test_the_port_is_one_from_the_entry_to_the_network_policies(entry, manifest):
    def ports(rules):
        return {port['port'] for rule in rules for port in rule['ports']}

    service = manifest['Service', 'breakout-learner']['spec']['ports']
    learner, others = (manifest['NetworkPolicy', f'breakout-{name}']['spec'] for name in ('learner', 'others'))
    pods = {role: pod['containers'][0] for role, (_, pod) in jobs(manifest).items()}
    assert [(port['port'], port['targetPort']) for port in service] == [(entry.DEFAULT_PORT, entry.DEFAULT_PORT)]
    assert ports(learner['ingress']) == {entry.DEFAULT_PORT} and ports(others['egress']) == {entry.DEFAULT_PORT, 53}
    assert [port['containerPort'] for port in pods['learner']['ports']] == [entry.DEFAULT_PORT]
    assert f'--port={entry.DEFAULT_PORT}' in pods['learner']['args']
    for role in ('evaluator', 'collector'):
        assert f'--attach-to=tcp://breakout-learner:{entry.DEFAULT_PORT}' in pods[role]['args']


def test_only_pods_of_the_run_reach_the_learner_and_nobody_reaches_the_others(manifest):
    def is_selected(labels, selector):
        operators = dict(In=lambda value, values: value in values, NotIn=lambda value, values: value not in values)
        return all(labels.get(key) == value for key, value in selector.get('matchLabels', {}).items()) and all(
            operators[rule['operator']](labels.get(rule['key']), rule['values'])
            for rule in selector.get('matchExpressions', ())
        )

    labels = {role: job['template']['metadata']['labels'] for role, (job, _) in jobs(manifest).items()}
    learner, others = (manifest['NetworkPolicy', f'breakout-{name}']['spec'] for name in ('learner', 'others'))
    for role in labels:
        assert is_selected(labels[role], learner['podSelector']) == (role == 'learner')
        assert is_selected(labels[role], others['podSelector']) == (role != 'learner')
    for policy in (learner, others):
        assert policy['policyTypes'] == ['Ingress', 'Egress']
    ((caller,),) = (rule['from'] for rule in learner['ingress'])
    assert list(caller) == ['podSelector']  # of this namespace, that is
    assert all(is_selected(labels[role], caller['podSelector']) for role in labels)
    assert not is_selected({'app.kubernetes.io/name': 'another'}, caller['podSelector'])
    assert others['ingress'] == [] and learner['egress'] == []
    service = manifest['Service', 'breakout-learner']['spec']['selector']
    assert [role for role in labels if is_selected(labels[role], dict(matchLabels=service))] == ['learner']


def test_pods_have_no_more_rights_than_they_need(manifest):
    uid = int(re.search(r'--uid (\d+)', DOCKERFILE.read_text())[1])
    assert f'\nUSER {uid}:{uid}\n' in DOCKERFILE.read_text()
    for _, pod in jobs(manifest).values():
        (container,) = pod['containers']
        assert pod['securityContext']['runAsNonRoot'] and pod['securityContext']['runAsUser'] == uid
        assert pod['securityContext']['seccompProfile'] == dict(type='RuntimeDefault')
        assert pod['automountServiceAccountToken'] is False
        # a Service's address would come as a variable, and could be taken for an option
        assert pod['enableServiceLinks'] is False
        assert container['securityContext']['readOnlyRootFilesystem']
        assert container['securityContext']['allowPrivilegeEscalation'] is False
        assert container['securityContext']['capabilities'] == dict(drop=['ALL'])
        assert set(container['resources']['requests']) == {'cpu', 'memory'}
        assert 'memory' in container['resources']['limits']
    assert 'Secret' not in {kind for kind, _ in manifest}


def test_on_kubernetes_a_run_outlives_its_pods(manifest):
    work_folder = re.search(r'^WORKDIR (\S+)$', DOCKERFILE.read_text(), re.M)[1]
    for role, (job, pod) in jobs(manifest).items():
        (container,) = pod['containers']
        assert pod['restartPolicy'] == 'Never'  # which exit codes need
        codes = {
            code: rule['action']
            for rule in job['podFailurePolicy']['rules']
            for code in rule.get('onExitCodes', {}).get('values', ())
        }
        assert codes == {143: 'Ignore'}  # role.sh's where a role was stopped
        assert container['name'] == role
        mounts = {mount['mountPath']: mount['name'] for mount in container['volumeMounts']}
        volumes = {volume['name']: volume for volume in pod['volumes']}
        assert set(mounts) == {work_folder, '/tmp'} and set(mounts.values()) == set(volumes)
    job, pod = jobs(manifest)['learner']
    assert job['podReplacementPolicy'] == 'Failed' and job.get('parallelism', 1) == 1
    assert pod['terminationGracePeriodSeconds'] > launcher._SAVE_S + launcher._END_S
    claim = next(volume['persistentVolumeClaim'] for volume in pod['volumes'] if 'persistentVolumeClaim' in volume)
    assert ('PersistentVolumeClaim', claim['claimName']) in manifest
    assert 'completions' not in jobs(manifest)['collector'][0]  # or one of many that ends would be replaced


# ------------------------------------------------------------------------------------------------------------ the image


def test_the_image_has_one_name(manifest):
    name = f'breakout-env:{breakout_env.__version__}'
    assert {pod['containers'][0]['image'] for _, pod in jobs(manifest).values()} == {name}
    assert f'--tag {name} ' in DOCKERFILE.read_text()


def test_steps_of_the_dockerfile_find_what_they_copy_and_start_what_they_copied(steps):
    files = {str(path) for path in steps.context()}
    done = steps.instructions()
    copied = [value.split() for instruction, value in done if instruction == 'COPY']
    assert all(source == '.' or source in files for source, _ in copied)
    assert ['deploy/role.sh', f'/usr/local/bin/{json.loads(dict(done)["ENTRYPOINT"])[0]}'] in copied
    assert os.access(ROLE, os.X_OK)
    folders = {path.split('/')[0] for path in files if '/' in path}
    assert folders == {'breakout_env', 'configs', 'deploy', 'entry'}
    assert files - {path for path in files if '/' in path} == {'LICENSE', 'README.md', 'constraints.txt', 'setup.py'}
    assert not any('__pycache__' in path or path.startswith('deploy/k') for path in files)


def test_what_the_image_starts_is_in_the_package_made_of_what_it_copies(steps, tmp_path):
    steps.copy('.', '/source', tmp_path)
    site = tmp_path / 'site'
    run([sys.executable, 'setup.py', '-q', 'build', '--build-lib', site], tmp_path / 'source')  # what a wheel holds
    printed = run([ROLE, '--help'], tmp_path, PYTHONPATH=str(site))
    assert '--attach-to tcp://HOST:PORT' in printed


def role(folder: Path, ends_with: int, when_stopped: int) -> subprocess.Popen:
    """role.sh with a program in the entry's place that ends in a known way; it is there when this returns."""
    (folder / 'python').write_text(
        f'#!/bin/bash\ntrap "exit {when_stopped}" TERM\ntouch started\n'
        f'[[ $* == *--wait* ]] && for i in {{1..100}}; do sleep 0.1; done\nexit {ends_with}\n'
    )
    (folder / 'python').chmod(0o755)
    environ = {**os.environ, 'PATH': f'{folder}:{os.environ["PATH"]}'}
    process = subprocess.Popen([ROLE, *(['--wait'] if when_stopped >= 0 else [])], cwd=folder, env=environ)
    assert wait_until((folder / 'started').exists)
    return process


@pytest.mark.parametrize('code', [0, 2, 3])
def test_a_role_that_ends_by_itself_ends_with_its_own_code(code, tmp_path):
    assert role(tmp_path, ends_with=code, when_stopped=-1).wait(10) == code


@pytest.mark.parametrize('code, expected', [(0, 143), (1, 1)])
def test_a_role_that_was_stopped_in_order_is_not_taken_for_a_run_that_is_done(code, expected, tmp_path):
    process = role(tmp_path, ends_with=0, when_stopped=code)
    process.terminate()
    assert process.wait(10) == expected
