"""Where the package lets go of something, flushes to the disk, or counts references: where faults are planted."""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

FSYNCS = {'fsync', 'fdatasync', '_flush_folder'}
# By the name that is called, whatever it is called on.
RELEASES = {
    *('close', 'kill', 'killpg', 'terminate', 'unlink', 'rmtree', 'rmdir', 'munmap', 'unregister', 'release'),
    *('shutdown', 'destroy_process_group', 'unlock_', 'give_back', 'closing', 'waitpid', 'finalize'),
    # our own, behind which others of these are
    *('_end', '_release', '_give_back', '_end_all', '_remove_part', '_remove_leftovers', '_forget', '_drop_prefetched'),
    *('_lose', '_let_go', '_tidy', '_finish', '_own', 'end'),
}
# In a function by one of these names, these are releases, too: waiting for what ends, and dropping the last reference.
CLOSING = {'close', 'release', 'exit', 'give_back', 'end', 'end_all', 'kill', 'forget', 'leave', 'let_go', 'finish'}
RELEASES_OF_CLOSING = {'join', 'wait', 'clear', 'set', 'stop'}
REFERENCES = {'take', 'hold', 'drop', 'release', 'cancel', 'set_references', '_forget'}
# What is counted in place: references to frames, uses of strings, segments of a codec, bytes that live in a segment.
COUNTERS = {'references', '_uses', '_segments_of', '_live', '_live_bytes', '_dead_bytes', '_frames', '_depth'}


@dataclass(frozen=True)
class Site:
    """
    Overview:
        A place in the package.
    """

    # (str) 'fsync', 'release' or 'reference'.
    kind: str
    # (str) The file, from the package's folder on.
    file: str
    # (str) The function, with its class or the function it lies in.
    function: str
    # (int) The line, from 1.
    line: int
    # (int) Where its text begins and ends in the file.
    start: int
    end: int
    # (str) Its text.
    text: str

    def __str__(self) -> str:
        return f'{self.file}:{self.line} ({self.function}): {self.text}'


def functions_in(source: str) -> Dict[str, Tuple[int, int]]:
    """Where each function of a file begins and ends, by its name with all that it lies in."""
    starts = _line_starts(source)
    return {'<module>': (0, len(source))} | {
        name: (_offset(source, starts, node.lineno, node.col_offset), _end(source, starts, node))
        for name, node in _functions(ast.parse(source))
    }


def sites_in(source: str, file: str) -> List[Site]:
    """
    Overview:
        All places of a file that let go of something, flush, or count references.
    Arguments:
        - source (:obj:`str`): The file's text.
        - file (:obj:`str`): Its name, from the package's folder on.
    """
    starts, sites = _line_starts(source), {}
    for function, node in _functions(ast.parse(source)):
        for inner in _of_this_function(node):
            kind = _kind(inner, function.split('.')[-1].strip('_'), file)
            if kind is not None:
                start, end = _offset(source, starts, inner.lineno, inner.col_offset), _end(source, starts, inner)
                sites[start] = Site(kind, file, function, inner.lineno, start, end, source[start:end])
    return [sites[start] for start in sorted(sites)]


def sites_of_package(package: Path) -> List[Site]:
    """All such places of a package."""
    files = sorted(path for path in package.rglob('*.py'))
    return [site for path in files for site in sites_in(path.read_text(), path.relative_to(package).as_posix())]


def _functions(tree: ast.AST, within: str = '') -> Iterator[Tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f'{within}{node.name}'
            if not isinstance(node, ast.ClassDef):
                yield name, node
            yield from _functions(node, f'{name}.')
        else:
            yield from _functions(node, within)


def _of_this_function(function: ast.AST) -> Iterator[ast.AST]:
    """What lies in a function, but not in one that it defines."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node
            yield from _of_this_function(node)


def _kind(node: ast.AST, function: str, file: str) -> Optional[str]:
    is_replay = file.startswith('replay/')
    is_closing = function in CLOSING
    if isinstance(node, ast.AugAssign):
        target = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        return 'reference' if is_replay and _last_name(target) in COUNTERS else None
    if isinstance(node, ast.Assign) and is_closing:
        return 'release' if _is_attribute(node.targets) and _is_nothing(node.value) else None
    if not isinstance(node, (ast.Call, ast.Attribute)):
        return None
    if isinstance(node, ast.Attribute):  # a release that is handed on, to be called at the end
        return None
    name, receiver = _last_name(node.func), getattr(node.func, 'value', None)
    if name in FSYNCS:
        return 'fsync'
    if (
        isinstance(receiver, ast.Constant)
        or _last_name(receiver) in ('path', 'shlex', 'os')
        and name in ('join', 'kill')
    ):
        return None  # text, a path; a signal to this process itself
    if name == 'take' and _last_name(receiver) == 'np':
        return None
    if is_replay and name in REFERENCES and not (name == 'release' and _last_name(receiver) in ('view', '_lock')):
        return 'reference'
    if name in RELEASES or (is_closing and name in RELEASES_OF_CLOSING):
        return 'release'
    return None


def _last_name(node: Optional[ast.AST]) -> str:
    return getattr(node, 'attr', getattr(node, 'id', ''))


def _is_attribute(targets: List[ast.AST]) -> bool:
    return any(isinstance(target, ast.Attribute) for target in targets)


def _is_nothing(value: ast.AST) -> bool:
    if isinstance(value, ast.Constant):
        return value.value is None
    return isinstance(value, (ast.List, ast.Dict)) and not ast.dump(value).count('elts=[C') and not _parts(value)


def _parts(value: ast.AST) -> list:
    return value.elts if isinstance(value, ast.List) else value.keys


def _line_starts(source: str) -> List[int]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _offset(source: str, starts: List[int], line: int, column: int) -> int:
    # Python counts columns in bytes
    text = source[starts[line - 1] : starts[line]]
    return starts[line - 1] + len(text.encode()[:column].decode())


def _end(source: str, starts: List[int], node: ast.AST) -> int:
    return _offset(source, starts, node.end_lineno, node.end_col_offset)
