"""The job files in deploy/ pass their schemas, and give ``breakout train`` options that it has."""

import re
import shlex
from typing import Any

import pytest
import yaml

from breakout_cli.train import command as train
from helpers.processes import BIN, ROOT, run

DEPLOY = ROOT / 'deploy'
BATCH_SCRIPT = DEPLOY / 'slurm' / 'breakout.sbatch'
MANIFEST = DEPLOY / 'kubernetes' / 'breakout.yaml'


@pytest.fixture(scope='module')
def manifest() -> dict[str, Any]:
    return {document['kind']: document for document in yaml.safe_load_all(MANIFEST.read_text())}


def pod_templates(manifest: dict[str, Any]) -> dict[str, Any]:
    cluster = manifest['RayJob']['spec']['rayClusterSpec']
    groups = dict(head=cluster['headGroupSpec'], **{group['groupName']: group for group in cluster['workerGroupSpecs']})
    return {name: group['template'] for name, group in groups.items()}


def options_of(words: list) -> dict[str, Any]:
    return train.make_context('train', words).params


def test_pods_and_volumes_match_the_schemas_of_kubernetes(manifest, tmp_path):
    pods = [
        dict(apiVersion='v1', kind='Pod', metadata=dict(name=name), spec=template['spec'])
        for name, template in pod_templates(manifest).items()
    ]
    (tmp_path / 'core.yaml').write_text(yaml.safe_dump_all([manifest['PersistentVolumeClaim'], *pods]))
    printed = run([BIN / 'kubernetes-validate', '--strict', 'core.yaml'], tmp_path)
    assert printed.count(' passed ') == 1 + len(pods)


def test_the_job_on_kubernetes_resumes_its_run_with_ray_authentication(manifest):
    spec = manifest['RayJob']['spec']
    program, command, *words = shlex.split(spec['entrypoint'])
    options = options_of(words)
    assert (program, command, options['ray_address']) == ('breakout', 'train', 'auto')
    assert options['auto_resume'] and options['exp_name'] and options['collectors'] > 1
    assert spec['backoffLimit'] > 0 and spec['shutdownAfterJobFinishes']
    assert spec['rayClusterSpec']['authOptions'] == dict(mode='token')


def test_the_image_is_built_from_the_files_that_dockerignore_admits():
    admitted = set(re.findall(r'^!(\S+)$', (ROOT / '.dockerignore').read_text(), re.M))
    assert {'setup.py', 'constraints.txt', 'breakout_cli', 'breakout_env', 'configs', 'entry'} <= admitted
    assert all((ROOT / name).exists() for name in admitted)


def test_a_batch_job_gives_options_that_exist_and_has_time_to_save():
    text = BATCH_SCRIPT.read_text()
    words = re.search(r'breakout" train (.*?) "\$@"', text)[1].replace('"', '')
    options = options_of(shlex.split(words.replace('$address', 'a:1').replace('$SLURM_JOB_NAME', 'run')))
    assert options['auto_resume'] and options['collectors'] == 'auto' and options['exp_name'] == 'experiments/run'
    sbatch = dict(re.findall(r'^#SBATCH --([\w-]+)=?(.*)$', text, re.M))
    assert 'requeue' in sbatch and sbatch['open-mode'] == 'append'
    assert sbatch['dependency'] == 'singleton'  # a name is a run, and a run has one learner
    number, seconds = sbatch['signal'].removeprefix('B:').split('@')
    assert f"trap 'stop {number}' {number}" in text and int(seconds) >= 300
