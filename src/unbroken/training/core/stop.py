"""Say when a training has to save and leave; standard library alone."""

from __future__ import annotations

from unbroken.training.core.process_group import Processes, RankRequest
from unbroken.training.core.save_schedule import Phase, SaveSchedule


class StopRequest:
    """Ask for a training, on all of its ranks, if it has to leave."""

    def __init__(self, pace: SaveSchedule, ranks: Processes) -> None:
        self._pace, self._ranks = pace, ranks.twin()
        self._is_agreed = False

    @property
    def requested(self) -> bool:
        """Return True if it is time to save and leave; then it stays True.

        That is after USR1, TERM or Ctrl-C, when the stop file is there, and before the deadline of the job.  All ranks
        get the same answer, and have to ask equally often; of several, the one to the question before.
        """
        if not self._is_agreed:
            self._is_agreed = self._ranks.agreed(self._wish, at_once=False).stop
            self._ranks.ask(self._wish)
        return self._is_agreed

    def _wish(self) -> RankRequest:
        return RankRequest(stop=self._pace.must_stop(Phase.BATCH))
