"""A torch.profiler trace of a prefill and a few decode steps."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..llm import LLM

SUFFIXES = (".json", ".json.gz")  # torch compresses the latter
DECODE_STEPS = 4


def write_profile(path: Path, llm: "LLM", prompts: list[list[int]]) -> None:
    """Answer the prompts once to warm up and once under the profiler; write the trace, in place of an existing file.

    The trace has the model's record_function ranges, PyTorch's operations and, on a GPU, the kernels.
    """
    from torch.profiler import ProfilerActivity, profile

    from ..params import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=1 + DECODE_STEPS, ignore_eos=True)
    llm.generate(prompts, params)
    activities = [ProfilerActivity.CPU]
    if llm.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        llm.generate(prompts, params)
    draft = path.with_name(f".{os.getpid()}.{path.name}")  # a draft, so that a run that fails leaves no half a file
    try:
        profiler.export_chrome_trace(str(draft))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
