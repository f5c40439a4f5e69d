"""The log files of a run that is over."""

from ding.utils import build_logger

from breakout_env.compat.ding_log_files import close_log_files


def test_a_run_is_logged_into_its_own_files_only():
    def log(folder: str, text: str) -> None:
        build_logger(f'./{folder}/log/learner', 'learner', need_tb=False)[0].info(text)

    def read(folder: str) -> str:
        with open(f'{folder}/log/learner/learner_logger.txt') as file:
            return file.read()

    log('first', 'one')
    log('second', 'two')
    assert 'two' in read('first'), 'remove the workaround'
    close_log_files('first')
    log('second', 'three')
    assert 'three' not in read('first') and 'three' in read('second')
    close_log_files('second')
