"""The documents say what is true: links, names, commands, examples and generated tables; their programs start."""

import doctest
import importlib
import json
import pkgutil
import re
import subprocess
import sys

import click
import pytest

import benchmarks
import breakout_env
from breakout_cli import main as breakout
from breakout_env.agent.agent import PRETRAINED, load_agent
from helpers.processes import ROOT
from tools.make_pretrained import card_as_markdown

DOCUMENTS = sorted([*ROOT.glob('*.md'), *ROOT.glob('examples/*/*.md'), *ROOT.glob('docs/*.md')])
READMES = [ROOT / 'README.md', ROOT / 'README.zh-CN.md']
TOP_FOLDERS = 'benchmarks|breakout_cli|breakout_env|configs|deploy|docs|entry|examples|tests|tools'
SOURCES = sorted((ROOT / 'breakout_env').rglob('*.py'))
every_document = pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def code(path, language):
    return re.findall(rf'```{language}\n(.*?)```', path.read_text(), re.S)


@pytest.fixture
def scripts(monkeypatch):
    """Import a program of docs/scripts."""
    monkeypatch.syspath_prepend(ROOT / 'docs' / 'scripts')
    monkeypatch.setattr(sys, 'path', [*sys.path])
    return importlib.import_module


@every_document
def test_links_lead_to_files_and_headings(path):
    for target, anchor in re.findall(r'\]\(([^)#\s]*)(?:#([^)]+))?\)', path.read_text()):
        if target.startswith('https://'):
            continue
        found = path.parent / target if target else path
        assert found.exists(), target
        if anchor:
            headings = re.findall(r'^#+ (.+)$', found.read_text(), re.M)
            anchors = {re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-') for heading in headings}
            assert anchor in anchors, f'{target}#{anchor}'


@pytest.mark.parametrize(
    'path', [path for path in DOCUMENTS if path.name != 'CHANGELOG.md'], ids=lambda path: path.name
)
def test_files_and_modules_that_documents_name_exist(path):
    text = path.read_text()
    for name in re.findall(rf'`((?:{TOP_FOLDERS})/[\w./-]*)`', text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r'(?:python -m |`)((?:benchmarks|breakout_env)(?:\.[a-z_]+)+)', text):
        parts = name.split('.')
        as_file = ROOT.joinpath(*parts)
        assert as_file.is_dir() or as_file.with_suffix('.py').exists(), name
    for name in re.findall(r'docs/results/[\w./]+', text):
        assert (ROOT / name.rstrip('.')).exists(), name


def commands(path):
    """The lines of shell code, without comments and with continued lines joined."""
    for block in code(path, 'bash'):
        for line in block.replace('\\\n', ' ').splitlines():
            command = re.sub(r'(^|\s)#.*', '', line).strip()
            if command:
                yield command


@every_document
def test_commands_of_breakout_and_make_exist(path):
    targets = set(re.findall(r'^([a-z-]+):', (ROOT / 'Makefile').read_text(), re.M))
    for command in commands(path):
        words = [word for word in command.split() if '=' not in word or word.startswith('-')]
        if words[0] == 'make':
            assert words[1] in targets or words[1].startswith('.venv/installed-'), command
        elif words[0] == 'breakout':
            subcommand = breakout.get_command(click.Context(breakout), words[1])
            assert subcommand is not None, command
            options = {name for parameter in subcommand.params for name in (*parameter.opts, *parameter.secondary_opts)}
            used = {word.split('=')[0] for word in words[2:] if word.startswith('-')}
            assert used <= options, f'{command}: {used - options}'


def test_readme_shows_each_line_that_reset_and_close_log():
    *_, reuse, _ = code(READMES[0], 'python')
    done = subprocess.run([sys.executable, '-c', reuse], check=True, capture_output=True, text=True)
    shown = [event for comment in re.findall('# (.*)', reuse) for event in comment.split('; ')]
    shown = [event for event in shown if event not in ('opens nothing', 'nothing is open')]
    assert re.findall(r'^BreakoutEnv 1 in process \d+: (.*)$', done.stderr, re.M) == shown
    assert len(done.stderr.splitlines()) == len(shown)


def test_readme_snippet_of_the_lifecycle_kit_runs_alone():
    *_, kit = code(READMES[0], 'python')
    done = subprocess.run([sys.executable, '-c', kit], check=True, capture_output=True, text=True)
    assert re.search(r'^0 of \d+ checks failed', done.stdout, re.M), done.stdout


def test_readmes_have_the_same_commands_and_code():
    assert list(commands(READMES[0])) == list(commands(READMES[1]))
    assert code(READMES[0], 'python') == code(READMES[1], 'python')


@pytest.mark.parametrize('path', [path for path in SOURCES if '>>>' in path.read_text()], ids=lambda path: path.stem)
def test_the_examples_in_the_docstrings_of_a_module_run(path):
    module = importlib.import_module('.'.join(path.relative_to(ROOT).with_suffix('').parts))
    result = doctest.testmod(module)
    assert result.attempted and not result.failed


@pytest.mark.parametrize(
    'name', [each.name for each in pkgutil.walk_packages(benchmarks.__path__, 'benchmarks.') if not each.ispkg]
)
def test_each_benchmark_can_be_imported(name):
    importlib.import_module(name)


def test_the_api_reference_has_each_public_name():
    shown = set(re.findall(r'autoclass:: breakout_env\.(\w+)', (ROOT / 'docs' / 'reference.rst').read_text()))
    assert shown == {name for name in breakout_env.__all__ if not name.startswith('__')}


def test_option_tables_are_those_of_the_models(scripts):
    make = scripts('make_options')
    for name, text in make.blocks().items():
        assert scripts('blocks').filled(make.GUIDE, name, text) == make.GUIDE.read_text(), name


def test_tables_are_those_that_were_measured(scripts):
    for guide, tables in scripts('make_tables').TABLES.items():
        for name, make in tables.items():
            assert scripts('blocks').filled(ROOT / guide, name, make()) == (ROOT / guide).read_text(), (guide, name)


def test_memory_of_a_million_transitions_is_one_number(scripts):
    paths = [*ROOT.glob('configs/*.py'), ROOT / 'breakout_env' / 'replay' / 'buffer.py', ROOT / 'docs' / 'memory.md']
    stated = [number for path in paths for number in re.findall(r'(?:about|name,) ([\d.]+ GB)', path.read_text())]
    assert len(stated) > 4 and set(stated) == {scripts('make_tables').million_transitions()}


def test_every_result_has_a_program_a_date_and_commits_of_the_history(scripts):
    sources = scripts('sources')
    assert {path for name in sources.SOURCES for path in sources.results(name)} == set(sources.results())
    documents = [*DOCUMENTS, sources.GUIDE, PRETRAINED.parent / 'CARD.md']
    texts = {path: path.read_text() for path in documents}
    for path in sources.results():
        days, commits = sources.stamps(path)
        assert days and commits, path.name
        texts[path] = '; '.join(commits)
    for path, text in texts.items() if sources.has_history() else ():
        for commit in re.findall(r'\b(?=\w*[a-f])(?=\w*\d)[0-9a-f]{7}\b', text):
            assert sources.git('cat-file', '-t', commit) == 'commit', f'{path.name}: {commit}'


def test_shipped_agent_has_the_scores_of_the_kept_games():
    card = load_agent().card
    kept = json.loads((ROOT / 'docs' / 'results' / 'agents' / f'{PRETRAINED.stem}.json').read_text())
    assert card == kept['card'] and (PRETRAINED.parent / 'CARD.md').read_text() == card_as_markdown(card)
    for protocol, scores in kept['games'].items():
        stated = card['scores'][protocol]
        assert len(scores) == stated['episodes'] and sum(scores) / len(scores) == pytest.approx(stated['mean'])
