"""The documentation as a site (``make docs``): the guides, and an API reference from the docstrings."""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from breakout_env import __version__  # noqa: E402

project = 'breakout_env'
author = 'the authors of breakout_env'
version = release = __version__

# The source folder is the repository's root: guides link to the README, to configs and to examples.
root_doc = 'README'
include_patterns = [
    'README*.md',
    'CHANGELOG.md',
    'CONTRIBUTING.md',
    'breakout_env/pretrained/CARD.md',
    'docs/*.md',
    'docs/*.rst',
    'docs/results/README.md',
    'examples/another_project/README.md',
]
exclude_patterns = ['.*', 'build', 'dist', 'docs/_build', 'experiments', 'mutants']
extensions = ['myst_parser', 'sphinx.ext.autodoc', 'sphinx.ext.napoleon', 'sphinx.ext.viewcode']
myst_heading_anchors = 3
html_theme = 'furo'
html_title = f'breakout_env {release}'

autoclass_content = 'both'
autodoc_typehints = 'description'
autodoc_typehints_description_target = 'documented_params'
autodoc_inherit_docstrings = False  # DI-engine's are not written for Sphinx
autodoc_member_order = 'bysource'
napoleon_custom_sections = [('Shapes', 'params_style')]
napoleon_use_ivar = True

# Groups of pages in the sidebar.
CONTENTS = {
    'Guides': ['training', 'own_network', 'environment', 'gymnasium', 'lifecycle', 'memory', 'scale', 'reliability'],
    'Reference': ['options', 'reference', 'troubleshooting'],
    'Results': ['performance', 'experiments', 'results/README'],
    'Development': ['architecture', 'decisions'],
}
BESIDE = {'Results': ['breakout_env/pretrained/CARD'], 'Development': ['CONTRIBUTING', 'CHANGELOG']}
CHINESE = ['README.zh-CN', 'docs/lifecycle.zh-CN']


def add_contents(app: Any, page: str, source: list[str]) -> None:
    """Add the table of contents to the README, which needs none on other sites."""
    if page != root_doc:
        return
    groups = {name: [f'docs/{each}' for each in pages] + BESIDE.get(name, []) for name, pages in CONTENTS.items()}
    groups['Guides'].append('examples/another_project/README')
    for name, pages in {**groups, '简体中文': CHINESE}.items():
        source[0] += '\n'.join(['\n```{toctree}', ':hidden:', f':caption: {name}', *pages, '```', ''])


def redirect_index(app: Any, error: Exception | None) -> None:
    """Open the README where a web server asks for ``index.html``."""
    Path(app.outdir, 'index.html').write_text(f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n')


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect('source-read', add_contents)
    app.connect('build-finished', redirect_index)
