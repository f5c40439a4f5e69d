"""
One save of a data-parallel run: each rank its own checkpoint and replay buffer, all of them of one moment.

The first rank's lie where those of any run lie, so that everything that reads a run finds them; those of the others in
``ranks/<rank>`` below the experiment's folder. All ranks save between the same two collections, and the run goes on
from the newest moment that all of them have.
"""

import logging
from pathlib import Path
from typing import List, Optional

from ..run.checkpoints import Save, saves_in
from ..run.saver import RunSaver
from ..utils import run_registry
from ..utils.atomic_file import DamagedFile

_log = logging.getLogger(__name__)


class RankSaver(RunSaver):
    """
    Overview:
        The ``RunSaver`` of one rank. It saves when a pipeline calls ``between_rounds``, on all ranks at once.
    Interfaces:
        ``resume``, ``between_rounds``, and the base's.
    """

    def __init__(self, learner: 'BaseLearner', save_every_s: float, ranks: 'Ranks') -> None:  # noqa: F821
        """
        Arguments:
            - learner, save_every_s: As the base's; the first rank's clock counts.
            - ranks (:obj:`Ranks`): Who else takes part.
        """
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
        """
        Overview:
            Save if it is time; called by all ranks at once, after the last update of a collection.
        Arguments:
            - is_last (:obj:`bool`): Whether the run ends here: then it is time, and the save is waited for.
        """
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
        """No save: where the ranks have not ended together, this one's would be of a moment of its own."""
        if self.buffer is not None:
            self.buffer.wait_for_saving()
        run_registry.forget(self._learner.exp_name)

    def _kept_beside(self, save: Save) -> List[Save]:
        # by the time that this save is written here, it may have failed elsewhere
        return [s for s in saves_in(self._folder) if s['iteration'] == self._common_iteration != save['iteration']]

    # ---------------------------------------------------------------- going on

    def resume(self) -> bool:
        """
        Overview:
            Restore the newest save that all ranks have and can use. Called by all ranks at once.
        Raises:
            - DamagedFile: If there are saves, but none that all ranks can use.
            - ValueError: If they are of another network, or of another number of ranks.
            - RankFailed: If it is another rank that found so.
        """
        lists = self._ranks.each(lambda: saves_in(self._folder))
        self._check_ranks([pair for pairs in lists for pair in pairs])
        failures = [
            f'rank {rank} has the saves at {", ".join(str(pair["iteration"]) for pair in pairs) or "none"} updates'
            for rank, pairs in enumerate(lists)
            if any(lists)
        ]
        mine = {pair['iteration']: pair for pair in lists[self._ranks.rank]}
        everywhere = set.intersection(*({pair['iteration'] for pair in pairs} for pairs in lists))
        for iteration in sorted(everywhere, reverse=True):
            state, problem = None, None
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
