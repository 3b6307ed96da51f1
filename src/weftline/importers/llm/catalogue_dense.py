"""The table of popular dense models: facts of their config.json files.

In: nothing. Out: families; of each the fields that its models share, and a line of numbers for every model. Simplified:
what has the value that the architecture assumes is left out; "-" stands for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = [
    "AICONFIGURATOR_FILES",
    "CONFIG_FILES",
    "DENSE_FAMILIES",
    "HEADED_COLUMNS",
    "HYBRID_FIELDS",
    "USUAL_COLUMNS",
    "KnownFamily",
]


class KnownFamily(msgspec.Struct, frozen=True):
    """Models of one architecture."""

    source: str
    fields: Mapping[str, object]
    """Shared, as config.json names them."""
    columns: str
    """Fields that have a number in every line, after the name and its aliases."""
    models: str


CONFIG_FILES = "config.json of the Hugging Face repositories"
AICONFIGURATOR_FILES = "config.json, by the model_configs of ai-dynamo/aiconfigurator at 095f58a"
SAME_SIZE = "taken as Qwen3.6-27B: 26.9 B parameters are published of both, no config.json was seen"
USUAL_COLUMNS = (
    "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads vocab_size "
    "max_position_embeddings"
)
HEADED_COLUMNS = f"{USUAL_COLUMNS} head_dim"
HYBRID_FIELDS = {
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "head_dim": 256,
}

DENSE_FAMILIES = (
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "llama"},
        USUAL_COLUMNS,
        """
        llama-3.3-70b 8192 28672 80 64 8 128256 131072
        llama-3.1-8b,llama3.1,llama3.1-8b,deepseek-r1-distill-llama-8b,hermes-3-llama-3.1-8b,llama-3.1-tulu-3-8b,\
llama-3.1-nemotron-nano-8b,llama-3.1-nemotron-nano-8b-v1 \
4096 14336 32 32 8 128256 131072
        llama-3.1-70b,llama3.1-70b,deepseek-r1-distill-llama-70b,deepseek-r1-70b,hermes-3-llama-3.1-70b \
8192 28672 80 64 8 128256 131072
        llama-3.1-405b,llama3.1-405b 16384 53248 126 128 8 128256 131072
        llama-3-8b,llama3-8b 4096 14336 32 32 8 128256 8192
        llama-3-70b,llama3-70b 8192 28672 80 64 8 128256 8192
        llama-2-7b,llama2-7b 4096 11008 32 32 32 32000 4096
        llama-2-13b,llama2-13b 5120 13824 40 40 40 32000 4096
        llama-2-70b,llama2-70b 8192 28672 80 64 8 32000 4096
        llama-7b 4096 11008 32 32 32 32000 2048
        llama-13b 5120 13824 40 40 40 32000 2048
        llama-30b,llama-33b 6656 17920 60 52 52 32000 2048
        llama-65b 8192 22016 80 64 64 32000 2048
        codellama-34b 8192 22016 48 64 8 32000 16384
        tinyllama-1.1b 2048 5632 22 32 4 32000 2048
        yi-34b 7168 20480 60 56 8 64000 4096
        yi-1.5-9b 4096 11008 48 32 4 64000 4096
        yi-1.5-34b 7168 20480 60 56 8 64000 4096
        solar-10.7b 4096 14336 48 32 8 32000 4096
        deepseek-coder-6.7b 4096 11008 32 32 32 32256 16384
        deepseek-coder-33b 7168 19200 62 56 8 32256 16384
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "llama"},
        HEADED_COLUMNS,
        """
        falcon3-1b 2048 8192 18 8 4 131072 4096 256
        falcon3-3b 3072 9216 22 12 4 131072 32768 256
        falcon3-7b 3072 23040 28 12 4 131072 32768 256
        falcon3-10b 3072 23040 40 12 4 131072 32768 256
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "llama", "tie_word_embeddings": True},
        HEADED_COLUMNS,
        """
        llama-3.2-1b,llama3.2-1b 2048 8192 16 32 8 128256 131072 64
        llama-3.2-3b,llama3.2-3b 3072 8192 28 24 8 128256 131072 128
        smollm2-135m 576 1536 30 9 3 49152 8192 64
        smollm2-360m 960 2560 32 15 5 49152 8192 64
        smollm2-1.7b 2048 8192 24 32 32 49152 8192 64
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "smollm3", "tie_word_embeddings": True},
        USUAL_COLUMNS,
        "smollm3-3b 2048 11008 36 16 4 128256 65536",
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "mistral"},
        HEADED_COLUMNS,
        """
        mistral-7b-v0.1,mistral-7b 4096 14336 32 32 8 32000 32768 128
        mistral-7b-v0.2 4096 14336 32 32 8 32000 32768 128
        mistral-7b-v0.3 4096 14336 32 32 8 32768 32768 128
        mistral-nemo-12b,mistral-nemo,mistral-nemo-2407 5120 14336 40 32 8 131072 131072 128
        ministral-8b,ministral-8b-2410 4096 12288 36 32 8 131072 32768 128
        mistral-small-22b,codestral-22b,codestral-22b-v0.1,mistral-small-2409 6144 16384 56 48 8 32768 32768 128
        mistral-small-24b,mistral-small-24b-2501,mistral-small-3-24b 5120 32768 40 32 8 131072 32768 128
        mistral-small-3.2-24b,mistral-small-3.1-24b,mistral-small-3.2-24b-2506,mistral-small-3.1-24b-2503,magistral-small,\
magistral-small-2507,devstral-small,devstral-small-2507 5120 32768 40 32 8 131072 131072 128
        mistral-large-123b,mistral-large,mistral-large-2407,mistral-large-2411 12288 28672 88 96 8 32768 131072 128
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "qwen2"},
        USUAL_COLUMNS,
        """
        qwen2.5-7b,qwen2.5-coder-7b,deepseek-r1-distill-qwen-7b,deepseek-r1-7b,qwen2-7b 3584 18944 28 28 4 152064 32768
        qwen2.5-14b,qwen2.5-coder-14b,deepseek-r1-distill-qwen-14b,deepseek-r1-14b 5120 13824 48 40 8 152064 32768
        qwen2.5-32b,qwen2.5-coder-32b,deepseek-r1-distill-qwen-32b,deepseek-r1-32b,qwq-32b \
5120 27648 64 40 8 152064 32768
        qwen2.5-72b,qwen2-72b 8192 29568 80 64 8 152064 32768
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "qwen2", "tie_word_embeddings": True},
        USUAL_COLUMNS,
        """
        qwen2.5-0.5b,qwen2.5-coder-0.5b,qwen2-0.5b 896 4864 24 14 2 151936 32768
        qwen2.5-1.5b,qwen2.5-coder-1.5b,qwen2-1.5b 1536 8960 28 12 2 151936 32768
        qwen2.5-3b,qwen2.5-coder-3b 2048 11008 36 16 2 151936 32768
        """,
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {"model_type": "qwen3"},
        HEADED_COLUMNS,
        """
        qwen3-8b,deepseek-r1-0528-qwen3-8b 4096 12288 36 32 8 151936 40960 128
        qwen3-14b 5120 17408 40 40 8 151936 40960 128
        qwen3-32b 5120 25600 64 64 8 151936 40960 128
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "qwen3", "tie_word_embeddings": True},
        HEADED_COLUMNS,
        """
        qwen3-0.6b 1024 3072 28 16 8 151936 40960 128
        qwen3-1.7b 2048 6144 28 16 8 151936 40960 128
        qwen3-4b 2560 9728 36 32 8 151936 40960 128
        qwen3-4b-2507,qwen3-4b-thinking-2507 2560 9728 36 32 8 151936 262144 128
        """,
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {"model_type": "qwen3_5", **HYBRID_FIELDS, "mtp_num_hidden_layers": 1},
        f"{USUAL_COLUMNS} linear_num_value_heads",
        """
        qwen3.5-27b 5120 17408 64 24 4 248320 262144 48
        qwen3.6-27b 5120 17408 64 24 4 248320 262144 48
        qwen3.5-9b 4096 12288 32 16 4 248320 262144 32
        """,
    ),
    KnownFamily(
        SAME_SIZE,
        {"model_type": "qwen3_5", **HYBRID_FIELDS, "mtp_num_hidden_layers": 1},
        f"{USUAL_COLUMNS} linear_num_value_heads",
        """
        qwen3.8-27b 5120 17408 64 24 4 248320 262144 48
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "qwen3_5", **HYBRID_FIELDS, "mtp_num_hidden_layers": 1, "tie_word_embeddings": True},
        f"{USUAL_COLUMNS} linear_num_value_heads",
        """
        qwen3.5-4b 2560 9216 32 16 4 248320 262144 32
        qwen3.5-0.8b 1024 3584 24 8 2 248320 262144 16
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "gemma"},
        HEADED_COLUMNS,
        """
        gemma-2b 2048 16384 18 8 1 256000 8192 256
        gemma-7b 3072 24576 28 16 16 256000 8192 256
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "gemma2"},
        HEADED_COLUMNS,
        """
        gemma-2-2b,gemma2-2b 2304 9216 26 8 4 256000 8192 256
        gemma-2-9b,gemma2-9b 3584 14336 42 16 8 256000 8192 256
        gemma-2-27b,gemma2-27b 4608 36864 46 32 16 256000 8192 128
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "gemma3"},
        f"{HEADED_COLUMNS} sliding_window",
        """
        gemma-3-270m,gemma3-270m 640 2048 18 4 1 262144 32768 256 512
        gemma-3-1b,gemma3-1b 1152 6912 26 4 1 262144 32768 256 512
        gemma-3-4b,gemma3-4b 2560 10240 34 8 4 262208 131072 256 1024
        gemma-3-12b,gemma3-12b 3840 15360 48 16 8 262208 131072 256 1024
        gemma-3-27b,gemma3-27b 5376 21504 62 32 16 262208 131072 128 1024
        """,
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {"model_type": "gemma4", "attention_k_eq_v": True, "sliding_window": 1024},
        f"{HEADED_COLUMNS} global_head_dim num_global_key_value_heads",
        "gemma-4-31b,gemma4-31b 5376 21504 60 32 16 262144 262144 256 512 4",
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "phi3"},
        USUAL_COLUMNS,
        """
        phi-3-mini,phi-3-mini-4k 3072 8192 32 32 32 32064 4096
        phi-3.5-mini,phi-3-mini-128k 3072 8192 32 32 32 32064 131072
        phi-3-medium,phi-3-medium-4k,phi-3-medium-14b 5120 17920 40 40 10 32064 4096
        phi-3-medium-128k 5120 17920 40 40 10 32064 131072
        phi-4,phi-4-14b,phi4 5120 17920 40 40 10 100352 16384
        phi-4-reasoning,phi-4-reasoning-plus 5120 17920 40 40 10 100352 32768
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "phi3", "tie_word_embeddings": True},
        USUAL_COLUMNS,
        "phi-4-mini,phi-4-mini-reasoning 3072 8192 32 24 8 200064 131072",
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "glm4"},
        HEADED_COLUMNS,
        "glm-4-32b,glm-4-32b-0414,glm-z1-32b,glm-z1-32b-0414 6144 23040 61 48 2 151552 32768 128",
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "glm4", "attention_bias": True},
        HEADED_COLUMNS,
        "glm-4-9b-0414,glm-z1-9b-0414,glm-z1-9b 4096 13696 40 32 2 151552 32768 128",
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "cohere"},
        USUAL_COLUMNS,
        """
        command-r-35b,command-r,command-r-v01 8192 22528 40 64 64 256000 131072
        aya-expanse-8b 4096 14336 32 32 8 256000 8192
        aya-expanse-32b,command-r-08-2024 8192 24576 40 64 8 256000 131072
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "cohere", "use_qk_norm": True},
        USUAL_COLUMNS,
        "command-r-plus-104b,command-r-plus 12288 33792 64 96 8 256000 131072",
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "cohere2", "sliding_window": 4096, "sliding_window_pattern": 4},
        USUAL_COLUMNS,
        """
        command-r7b,command-r7b-12-2024,c4ai-command-r7b-12-2024,c4ai-command-r7b 4096 14336 32 32 8 256000 132096
        command-a-111b,command-a,command-a-03-2025 12288 36864 64 96 8 256000 131072
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "granite", "tie_word_embeddings": True},
        USUAL_COLUMNS,
        """
        granite-3.1-8b,granite-3.3-8b,granite-3.2-8b 4096 12800 40 32 8 49155 131072
        granite-3.1-2b,granite-3.3-2b,granite-3.2-2b 2048 8192 40 32 8 49155 131072
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "olmo2"},
        USUAL_COLUMNS,
        """
        olmo-2-1b,olmo-2-0425-1b 2048 8192 16 16 16 100352 4096
        olmo-2-7b,olmo-2-1124-7b 4096 11008 32 32 32 100352 4096
        olmo-2-13b,olmo-2-1124-13b 5120 13824 40 40 40 100352 4096
        olmo-2-32b,olmo-2-0325-32b 5120 27648 64 40 8 100352 4096
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "starcoder2"},
        USUAL_COLUMNS,
        """
        starcoder2-3b 3072 12288 30 24 2 49152 16384
        starcoder2-7b 4608 18432 32 36 4 49152 16384
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "seed_oss"},
        HEADED_COLUMNS,
        "seed-oss-36b 5120 27648 64 80 8 155136 524288 128",
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "chatglm", "add_qkv_bias": True, "kv_channels": 128},
        "hidden_size ffn_hidden_size num_layers num_attention_heads multi_query_group_num padded_vocab_size seq_length",
        "glm-4-9b,glm-4-9b-chat 4096 13696 40 32 2 151552 131072",
    ),
)
