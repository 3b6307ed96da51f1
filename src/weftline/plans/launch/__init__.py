"""Commands that start an engine as a plan says: llama.cpp, vLLM and SGLang.

In: numbers of layers, names of devices, sizes. Out: a `LaunchLine` for every process, whose `shell` is quoted for a
POSIX shell; what an engine cannot run is a `UsageError` that says what to do instead. Simplified: one machine; devices
have the numbers that the bus gives them, in the order in which the user named them.
"""

from weftline.plans.launch.line import LaunchLine, quoted, visible_gpus
from weftline.plans.launch.llamacpp import (
    LlamaCppLaunch,
    assigned_layers,
    llamacpp_line,
    offload_words,
    overridden_tensors,
    override_words,
)
from weftline.plans.launch.servers import (
    SGLANG_PARTITION,
    VLLM_PARTITION,
    RankLaunch,
    check_partition,
    partition_words,
    sglang_line,
    vllm_line,
)

__all__ = [
    "SGLANG_PARTITION",
    "VLLM_PARTITION",
    "LaunchLine",
    "LlamaCppLaunch",
    "RankLaunch",
    "assigned_layers",
    "check_partition",
    "llamacpp_line",
    "offload_words",
    "overridden_tensors",
    "override_words",
    "partition_words",
    "quoted",
    "sglang_line",
    "visible_gpus",
    "vllm_line",
]
