"""The documents say what is true: options and defaults, links, and the same in both languages."""

import dataclasses
import re

import pytest

from breakout_env.options import EVALUATION_DEFAULTS, BreakoutOptions
from breakout_env.pairing import SCALING_MODELS
from conftest import ROOT

READMES = ['README.md', 'README.zh-CN.md']


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


@pytest.mark.parametrize('path', sorted(ROOT.glob('*.md')) + sorted(ROOT.glob('examples/*/*.md')), ids=lambda p: p.name)
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
