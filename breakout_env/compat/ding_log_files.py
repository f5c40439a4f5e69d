"""DI-engine 0.5.3: its loggers keep the log file of each run, so that the next run in the process is logged into the
files of the last one, too.
"""

import logging
from pathlib import Path


def close_log_files(exp_name: str) -> None:
    """Take the files of a run that is over from all loggers."""
    folder = Path(exp_name).resolve()
    for logger in [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]:
        for handler in logger.handlers[:]:
            if isinstance(handler, logging.FileHandler) and folder in Path(handler.baseFilename).parents:
                logger.removeHandler(handler)
                handler.close()
