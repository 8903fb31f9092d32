"""How many of a CPU's cores each step takes, for an engine that shares them with a server."""

import torch

from ..scheduling.batch import Batch


class Threads:
    """All cores for steps with prompt tokens, which keep all of them busy; one fewer for decodes alone.

    Idle OpenMP threads spin. On two cores, streaming ran at 67 % of the engine's own speed beside two such threads, at 98 % beside
    one; a prompt takes 1.6 to 1.9 times as long with one.
    """

    def __init__(self, cores: int) -> None:
        self.cores = cores

    def use(self, batch: Batch) -> None:
        """Call in the thread that is about to run the step: OpenMP counts for each thread by itself."""
        has_prompts = batch.decodes < len(batch.requests)
        count = self.cores if has_prompts else max(self.cores - 1, 1)
        if torch.get_num_threads() != count:
            torch.set_num_threads(count)
