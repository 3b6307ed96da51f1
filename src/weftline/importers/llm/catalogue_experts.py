"""The table of popular models with experts: facts of their config.json files.

In: nothing. Out: families, as in the table of dense models. Simplified: as there.
"""

from __future__ import annotations

from weftline.importers.llm.catalogue_dense import (
    AICONFIGURATOR_FILES,
    CONFIG_FILES,
    HEADED_COLUMNS,
    HYBRID_FIELDS,
    USUAL_COLUMNS,
    KnownFamily,
)

__all__ = ["EXPERT_FAMILIES"]

_MOE = (
    "hidden_size intermediate_size moe_intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
    "head_dim vocab_size max_position_embeddings"
)
_LATENT = (
    "hidden_size intermediate_size moe_intermediate_size num_hidden_layers num_attention_heads vocab_size "
    "max_position_embeddings n_routed_experts n_shared_experts num_experts_per_tok first_k_dense_replace "
    "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim num_nextn_predict_layers"
)
_MXFP4 = {"quantization_config": {"quant_method": "mxfp4"}}
_FP8 = {"quantization_config": {"quant_method": "fp8"}}

EXPERT_FAMILIES = (
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
        USUAL_COLUMNS,
        """
        mixtral-8x7b,mixtral-8x7b-v0.1,mixtral 4096 14336 32 32 8 32000 32768
        mixtral-8x22b,wizardlm-2-8x22b 6144 16384 56 48 8 32000 65536
        mixtral-8x22b-v0.1 6144 16384 56 48 8 32000 65536
        """,
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {"model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 8},
        _MOE,
        """
        qwen3-30b-a3b 2048 6144 768 48 32 4 128 151936 40960
        qwen3-30b-a3b-2507,qwen3-coder-30b-a3b,qwen3-coder-30b,qwen3-30b-a3b-thinking-2507 \
2048 6144 768 48 32 4 128 151936 262144
        qwen3-235b-a22b 4096 12288 1536 94 64 4 128 151936 40960
        qwen3-235b-a22b-2507,qwen3-235b-a22b-thinking-2507 4096 12288 1536 94 64 4 128 151936 262144
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "qwen3_moe", "num_experts": 160, "num_experts_per_tok": 8},
        _MOE,
        "qwen3-coder-480b-a35b,qwen3-coder-480b 6144 8192 2560 62 96 8 128 151936 262144",
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {"model_type": "qwen3_next", **HYBRID_FIELDS, "num_experts": 512, "num_experts_per_tok": 10},
        "hidden_size moe_intermediate_size shared_expert_intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads linear_num_value_heads vocab_size max_position_embeddings",
        "qwen3-next-80b-a3b,qwen3-coder-next,qwen3-next-80b-a3b-thinking,qwen3-next "
        "2048 512 512 48 16 2 32 151936 262144",
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {"model_type": "qwen3_5_moe", **HYBRID_FIELDS, "mtp_num_hidden_layers": 1},
        "hidden_size moe_intermediate_size shared_expert_intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads linear_num_value_heads num_experts num_experts_per_tok vocab_size max_position_embeddings",
        """
        qwen3.5-35b-a3b,qwen3.5-35b 2048 512 512 40 16 2 32 256 8 248320 262144
        qwen3.6-35b-a3b,qwen3.6-35b 2048 512 512 40 16 2 32 256 8 248320 262144
        qwen3.5-122b-a10b,qwen3.5-122b 3072 1024 1024 48 32 2 64 256 8 248320 262144
        qwen3.5-397b-a17b,qwen3.5-397b 4096 1024 1024 60 32 2 64 512 10 248320 262144
        """,
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {"model_type": "gemma4", "attention_k_eq_v": True, "sliding_window": 1024, "enable_moe_block": True},
        f"{HEADED_COLUMNS} global_head_dim num_global_key_value_heads moe_intermediate_size num_experts top_k_experts",
        "gemma-4-26b-a4b,gemma4-26b,gemma-4-26b 2816 2112 30 16 8 262144 262144 256 512 2 704 128 8",
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {"model_type": "gpt_oss", "sliding_window": 128, "num_experts_per_tok": 4, **_MXFP4},
        f"{HEADED_COLUMNS} num_local_experts",
        """
        gpt-oss-20b 2880 2880 24 64 8 201088 131072 64 32
        gpt-oss-120b 2880 2880 36 64 8 201088 131072 64 128
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "deepseek_v2"},
        _LATENT,
        """
        deepseek-v2-lite,deepseek-coder-v2-lite,deepseek-v2-lite-16b \
2048 10944 1408 27 16 102400 163840 64 2 6 1 - 512 128 64 128 -
        deepseek-v2,deepseek-coder-v2,deepseek-v2.5,deepseek-v2-236b \
5120 12288 1536 60 128 102400 163840 160 2 6 1 1536 512 128 64 128 -
        """,
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {"model_type": "deepseek_v3", **_FP8},
        _LATENT,
        """
        deepseek-v3,deepseek-r1,deepseek-v3-0324,deepseek-v3.1,deepseek-r1-0528,deepseek-v3-671b,deepseek-r1-671b \
7168 18432 2048 61 128 129280 163840 256 1 8 3 1536 512 128 64 128 1
        """,
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {"model_type": "kimi_k2"},
        _LATENT,
        """
        kimi-k2 7168 18432 2048 61 64 163840 131072 384 1 8 1 1536 512 128 64 128 -
        kimi-k2-0905,kimi-k2-thinking,kimi-k2.5 7168 18432 2048 61 64 163840 262144 384 1 8 1 1536 512 128 64 128 -
        """,
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {"model_type": "glm4_moe_lite"},
        _LATENT,
        "glm-4.7-flash 2048 10240 1536 47 20 154880 202752 64 1 4 1 768 512 192 64 256 -",
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {"model_type": "glm_moe_dsa"},
        _LATENT,
        "glm-5,glm-5-744b 6144 12288 2048 78 64 154880 202752 256 1 8 3 2048 512 192 64 256 1",
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "glm4_moe", "n_shared_experts": 1, "num_experts_per_tok": 8, "num_nextn_predict_layers": 1},
        f"{_MOE} n_routed_experts first_k_dense_replace",
        "glm-4.5-air,glm-4.5-air-106b,glm-4.5-air-106b-a12b 4096 10944 1408 46 96 8 128 151552 131072 128 1",
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {
            "model_type": "glm4_moe",
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "num_nextn_predict_layers": 1,
            "use_qk_norm": True,
        },
        f"{_MOE} n_routed_experts first_k_dense_replace",
        """
        glm-4.5,glm-4.5-355b 5120 12288 1536 92 96 8 128 151552 131072 160 3
        glm-4.6,glm-4.7 5120 12288 1536 92 96 8 128 151552 202752 160 3
        """,
    ),
    KnownFamily(
        AICONFIGURATOR_FILES,
        {
            "model_type": "llama4",
            "attention_chunk_size": 8192,
            "intermediate_size_mlp": 16384,
            "num_experts_per_tok": 1,
        },
        f"{HEADED_COLUMNS} num_local_experts interleave_moe_layer_step",
        """
        llama-4-scout,llama-4-scout-17b-16e,llama4-scout 5120 8192 48 40 8 202048 10485760 128 16 1
        llama-4-maverick,llama-4-maverick-17b-128e,llama4-maverick 5120 8192 48 40 8 202048 1048576 128 128 2
        """,
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "minimax_m2", "num_local_experts": 256, "num_experts_per_tok": 8, **_FP8},
        HEADED_COLUMNS,
        "minimax-m2,minimax-m2-230b,minimax-m2.1 3072 1536 62 48 8 200064 196608 128",
    ),
    KnownFamily(
        "config.json of NVIDIA-Nemotron-3-Nano-30B-A3B, by the arguments of Megatron in THUDM/slime",
        {
            "model_type": "nemotron_h",
            "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
            "mamba_num_heads": 64,
            "mamba_head_dim": 64,
            "ssm_state_size": 128,
            "n_groups": 8,
            "conv_kernel": 4,
        },
        f"{_MOE} n_routed_experts num_experts_per_tok moe_shared_expert_intermediate_size",
        "nemotron-3-nano-30b-a3b,nvidia-nemotron-3-nano-30b-a3b,nemotron-3-nano \
2688 1856 1856 52 32 2 128 131072 262144 128 6 3712",
    ),
    KnownFamily(
        CONFIG_FILES,
        {"model_type": "ernie4_5_moe", "tie_word_embeddings": True},
        f"{_MOE} moe_num_experts moe_num_shared_experts moe_k moe_layer_start_index",
        "ernie-4.5-21b-a3b,ernie-4.5-21b-a3b-pt 2560 12288 1536 28 20 4 128 103424 131072 64 2 6 1",
    ),
)
