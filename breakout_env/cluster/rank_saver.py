"""
A save of a data-parallel run: each rank's own checkpoint and buffer snapshot, all of the same moment.

The first rank's files are where those of any run are, so that everything that reads a run finds them; those of the
others are in ``ranks/<rank>`` below the experiment's folder. All ranks save between the same two collections, and the
run resumes from the newest save that all of them have.
"""

import logging
from pathlib import Path
from typing import List, Optional

from ding.worker import BaseLearner

from ..run.save_list import Save, saves_in
from ..run.saver import RunSaver
from ..utils import run_registry
from ..utils.atomic_file import DamagedFile
from .data_parallel import Ranks

_log = logging.getLogger(__name__)


class RankSaver(RunSaver):
    """The ``RunSaver`` of one rank. It saves when a pipeline calls ``between_rounds``, on all ranks at once."""

    def __init__(self, learner: BaseLearner, save_every_s: float, ranks: Ranks) -> None:
        super().__init__(learner)
        self._save_every_s = save_every_s
        self._ranks = ranks
        self._rank_count = ranks.size
        if not ranks.is_first:
            self._folder = Path(learner.exp_name) / 'ranks' / str(ranks.rank)
        # the newest save that is known to be there on all ranks
        self._common_iteration: Optional[int] = None

    # ---------------------------------------------------------------- saving

    def between_rounds(self, is_last: bool = False) -> None:
        """Save if it is time by the first rank's clock, or the run ends here; all ranks call it between collections."""
        is_time = self._ranks.is_first and self.seconds_since_save >= self._save_every_s
        (is_due,) = self._ranks.any(is_last or is_time)
        if is_due:
            if self.buffer is not None:
                self.buffer.wait_for_saving()
            saved = self._ranks.gather(self._saved_iteration)
            if len(set(saved)) == 1:
                self._common_iteration = saved[0]
            self.save(self._learner.last_iter.val, wait=is_last)

    def after_run(self) -> None:
        """Save nothing: ranks that have not ended together would save different moments."""
        if self.buffer is not None:
            self.buffer.wait_for_saving()
        run_registry.forget(self._learner.exp_name)

    def _kept_beside(self, save: Save) -> List[Save]:
        # this save may fail on another rank
        return [s for s in saves_in(self._folder) if s['iteration'] == self._common_iteration != save['iteration']]

    # ---------------------------------------------------------------- resuming

    def resume(self) -> bool:
        """
        Overview:
            Restore the newest save that all ranks have and can use; all ranks call it together.
        Raises:
            - DamagedFile: If there are saves, but none that all ranks can use.
            - ValueError: If they are of another network, or of another number of ranks.
            - RankFailed: If another rank found so.
        """
        lists = self._ranks.each(lambda: saves_in(self._folder))
        self._check_ranks([save for saves in lists for save in saves])
        failures = [
            f'rank {rank} has the saves at {", ".join(str(save["iteration"]) for save in saves) or "none"} updates'
            for rank, saves in enumerate(lists)
            if any(lists)
        ]
        mine = {save['iteration']: save for save in lists[self._ranks.rank]}
        everywhere = set.intersection(*({save['iteration'] for save in saves} for saves in lists))
        for iteration in sorted(everywhere, reverse=True):
            problem = None
            try:
                state = self._load(mine[iteration])
            except (DamagedFile, FileNotFoundError) as error:
                problem = str(error)
            problems = [found for found in self._ranks.gather(problem) if found is not None]
            if not problems:
                self._apply(mine[iteration], state)
                self._common_iteration = iteration
                return True
            _log.warning('%s; trying the save before it', '; '.join(problems))
            failures += problems
        return self._begin(failures)
