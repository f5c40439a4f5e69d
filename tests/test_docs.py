"""The documents say what is true: options and defaults, links, and the same in both languages."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest

from breakout_env.agent.agent import PRETRAINED, load_agent
from breakout_env.agent.card import card_as_markdown
from breakout_env.envs.options import EVALUATION_DEFAULTS, BreakoutOptions
from breakout_env.envs.pixel_check import SCALING_MODELS
from breakout_env.replay.options import ReplayOptions
from helpers.processes import ROOT

READMES = ['README.md', 'README.zh-CN.md']
MEMORY_GUIDES = ['docs/memory.md', 'docs/memory.zh-CN.md']
PERFORMANCE_GUIDES = ['docs/performance.md', 'docs/performance.zh-CN.md']
TRAINING_GUIDES = ['docs/training.md', 'docs/training.zh-CN.md']
SCALE_GUIDES = ['docs/scale.md', 'docs/scale.zh-CN.md']


@pytest.mark.parametrize('name', READMES)
def test_the_table_of_options_is_complete_and_right(name):
    rows = re.findall(r'^\| `(\w+)` \| (.+?) \| .+ \|$', (ROOT / name).read_text(), re.M)
    table = {option: re.findall(r'`(.+?)`', default) for option, default in rows}
    for field in dataclasses.fields(BreakoutOptions):
        expected = [repr(field.default)]
        if EVALUATION_DEFAULTS.get(field.name, field.default) != field.default:
            expected.append(repr(EVALUATION_DEFAULTS[field.name]))
        assert table.pop(field.name) == expected, field.name
    assert not table


@pytest.mark.parametrize('name', READMES)
def test_the_models_are_named(name):
    assert all(f'`{model}`' in (ROOT / name).read_text() for model in SCALING_MODELS)


@pytest.mark.parametrize('name', MEMORY_GUIDES)
def test_the_table_of_replay_options_is_complete_and_right(name):
    rows = re.findall(r'^\| `(\w+)` \| `(.+?)` \| .+ \|$', (ROOT / name).read_text(), re.M)
    assert dict(rows) == {name: repr(field.default) for name, field in ReplayOptions.model_fields.items()}


def test_the_tables_of_the_memory_guide_are_those_that_were_measured():
    measured = json.loads((ROOT / 'docs' / 'results' / 'bench_replay.json').read_text())
    script = (
        'import json, sys, bench_replay; about = json.load(open(sys.argv[1]));'
        "print(bench_replay.table(about['results'], about['sizes'], markdown=True))"
    )
    printed = subprocess.run(
        [sys.executable, '-c', script, str(ROOT / 'docs' / 'results' / 'bench_replay.json')],
        cwd=ROOT / 'benchmarks',
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.strip()
    assert len(printed.splitlines()) == len(measured['results']) + 2
    assert all(printed in (ROOT / name).read_text() for name in MEMORY_GUIDES)


def test_the_tables_of_the_performance_guide_are_those_that_were_measured():
    printed = subprocess.run(
        [sys.executable, '-c', 'import json, draw_performance; print(json.dumps(draw_performance.tables()))'],
        cwd=ROOT / 'benchmarks',
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    tables = json.loads(printed.splitlines()[-1])
    assert len(tables) == 9
    for name in PERFORMANCE_GUIDES:
        text = (ROOT / name).read_text()
        assert all(f'<!-- {table} -->\n{made}\n<!-- end -->' in text for table, made in tables.items()), name


def test_the_tables_of_the_training_guide_are_those_of_the_kept_logs():
    script = """
import json, make_training_figures as runs, make_variant_figures as variants
logs, agents = variants.read_variants(), variants.read_agents()
print(json.dumps(dict(
    runs=runs.table(runs.read_runs(variants.DOCS / 'results' / 'training')),
    variants=variants.variants_table(logs, variants.MATTERS),
    failures=variants.variants_table(logs, variants.FAILURES),
    averages=variants.averages_table(agents),
    **{'no-fire': variants.without_fire()},
    scores=variants.scores_table(agents),
)))
"""
    made = subprocess.run(
        [sys.executable, '-c', script], cwd=ROOT / 'docs', check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    tables = json.loads(made.splitlines()[-1])
    for name in TRAINING_GUIDES:
        text = (ROOT / name).read_text()
        assert all(f'<!-- {table} -->\n{made}\n<!-- end -->' in text for table, made in tables.items()), name
    assert all(f'<!-- scores -->\n{tables["scores"]}\n' in (ROOT / name).read_text() for name in READMES)


def test_the_tables_of_the_scale_guide_are_those_that_were_measured_and_predicted():
    script = """
import json, make_scale_tables as scale
constants = scale.Constants.read(scale.DOCS / 'results' / 'scale_constants.json')
print(json.dumps(scale.tables(scale.load(scale.DOCS), constants)))
"""
    made = subprocess.run(
        [sys.executable, '-c', script], cwd=ROOT / 'docs', check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    tables = json.loads(made.splitlines()[-1])
    assert len(tables) == 7
    for name in SCALE_GUIDES:
        text = (ROOT / name).read_text()
        assert all(f'<!-- {table} -->\n{made}\n<!-- end -->' in text for table, made in tables.items()), name


def test_the_agent_in_the_package_is_the_one_whose_games_are_kept():
    card = load_agent().card
    kept = json.loads((ROOT / 'docs' / 'results' / 'agents' / 'breakout_dqn.json').read_text())
    assert card == kept['card']
    assert (PRETRAINED.parent / 'CARD.md').read_text() == card_as_markdown(card)
    for protocol, scores in kept['games'].items():
        stated = card['scores'][protocol]
        assert len(scores) == stated['episodes'] and sum(scores) / len(scores) == pytest.approx(stated['mean'])


def test_commands_of_the_training_guide_are_the_same_in_both_languages():
    english, chinese = (
        [re.sub(r' +#.*', '', block) for block in re.findall(r'```bash\n(.*?)```', (ROOT / name).read_text(), re.S)]
        for name in TRAINING_GUIDES
    )
    assert english and english == chinese


@pytest.mark.parametrize('guides', [MEMORY_GUIDES, PERFORMANCE_GUIDES])
def test_guides_in_both_languages_show_the_same_code(guides):
    english, chinese = (
        [re.sub(r'  # .*', '', block) for block in re.findall(r'```python\n(.*?)```', (ROOT / name).read_text(), re.S)]
        for name in guides
    )
    assert english and english == chinese


DOCUMENTS = sorted(ROOT.glob('*.md')) + sorted(ROOT.glob('examples/*/*.md')) + sorted(ROOT.glob('docs/*.md'))


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r'\]\(([^)#]+)\)', path.read_text()):
        assert target.startswith('https://') or (path.parent / target).exists(), target


def test_both_languages_show_the_same_commands():
    english, chinese = (
        [
            line.split('  #')[0].split('     #')[0].strip()
            for block in re.findall(r'```bash\n(.*?)```', text, re.S)
            for line in block.splitlines()
        ]
        for text in ((ROOT / name).read_text() for name in READMES)
    )
    assert english == chinese
