"""No call in the package could run what it reads from a user's file."""

import ast

from helpers.processes import ROOT

UNSAFE = {'eval', 'exec', 'compile', 'torch.jit.load', 'yaml.load', 'yaml.unsafe_load', 'yaml.full_load'}
PICKLING = {'pickle', 'cPickle', 'dill', 'cloudpickle', 'marshal', 'shelve', 'joblib'}
UNSAFE |= {f'{module}.{name}' for module in PICKLING for name in ('load', 'loads', 'Unpickler')}
# safe with this argument
SAFE_WITH = {'torch.load': ('weights_only', True), 'read_array': ('allow_pickle', False)}
SAFE_WITH |= dict.fromkeys(['np.load', 'numpy.load'], ('allow_pickle', False))
# by file and call; what they read is never a user's file
EXCEPTIONS = {
    ('breakout_env/env_manager/workers.py', 'pickle.loads'): 'from a pipe to a process that this one has started',
    ('breakout_env/env_manager/worker_main.py', 'pickle.loads'): 'from that pipe, and what it has just pickled itself',
}


def unsafe_calls(source: str):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            safe_with = SAFE_WITH.get(name) or SAFE_WITH.get(name.rpartition('.')[2])
            given = [(keyword.arg, getattr(keyword.value, 'value', None)) for keyword in node.keywords]
            if name in UNSAFE or safe_with and safe_with not in given:
                yield name


def test_no_call_in_the_package_runs_what_it_reads_from_files():
    found = set()
    for folder in ('breakout_env', 'entry', 'configs'):
        for path in sorted((ROOT / folder).rglob('*.py')):
            found |= {(str(path.relative_to(ROOT)), name) for name in unsafe_calls(path.read_text())}
    assert found == set(EXCEPTIONS)
