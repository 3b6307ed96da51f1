"""Torch modules of timm, torchvision and transformers: known architectures from their configurations, random weights.

In: installed packages. Out: `MODULES`, name -> how it is built, always with the same weights, and example inputs by
name. Nothing is downloaded. Sizes are small, so that a model is exported and run within seconds; every architecture has
all kinds of its layers. torchvision needs operators that its builds for GPUs cannot load beside a torch for CPUs:
without them it cannot even be imported, so two of them are written here once more (see `import_torchvision`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

__all__ = ["MODULES", "TorchModule"]

Inputs = dict[str, Any]


@dataclass(frozen=True)
class TorchModule:
    """One architecture."""

    packages: tuple[str, ...]
    build: Callable[[], tuple[Any, Inputs]]

    def made(self) -> tuple[Any, Inputs]:
        """The module and its inputs, the same ones every time."""
        import torch

        torch.manual_seed(0)
        module, inputs = self.build()
        return module.eval(), inputs


def _image(size: int) -> Inputs:
    import torch

    return {"image": torch.rand(1, 3, size, size)}


def _timm(name: str, size: int, **more: Any) -> TorchModule:
    def build() -> tuple[Any, Inputs]:
        import_torchvision()
        import timm

        return timm.create_model(name, pretrained=False, **more), _image(size)

    return TorchModule(("torch", "torchvision", "timm"), build)


def _vision(name: str, size: int, **more: Any) -> TorchModule:
    def build() -> tuple[Any, Inputs]:
        torchvision = import_torchvision()
        return torchvision.models.get_model(name, weights=None, **more), _image(size)

    return TorchModule(("torch", "torchvision"), build)


def _detector(name: str, size: int, **more: Any) -> TorchModule:
    def build() -> tuple[Any, Inputs]:
        import torch

        torchvision = import_torchvision()

        class Detector(torch.nn.Module):  # type: ignore[misc]
            """One image in, tensors out."""

            def __init__(self) -> None:
                super().__init__()
                self.model = torchvision.models.get_model(name, weights=None, weights_backbone=None, **more)

            def forward(self, image: Any) -> Any:
                """Boxes, labels, scores, perhaps masks."""
                return tuple(self.model([image[0]])[0].values())

        return Detector(), _image(size)

    return TorchModule(("torch", "torchvision"), build)


def import_torchvision() -> Any:
    """torchvision, with `nms` and `roi_align` in Python where its own operators cannot be loaded."""
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        _define_operators()
        import torchvision

        def has_operators() -> bool:
            return True

        def assert_operators() -> None:
            pass

        import torchvision.ops

        for name in ("torchvision.extension", "torchvision.ops.boxes", "torchvision.ops.roi_align"):
            module: Any = sys.modules[name]
            module._has_ops, module._assert_has_ops = has_operators, assert_operators
    return torchvision


_LIBRARIES: list[Any] = []
"""Definitions live as long as these."""


def _define_operators() -> None:
    import torch

    boxes = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    regions = (
        "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor"
    )
    library = torch.library.Library("torchvision", "FRAGMENT")
    for signature in (f"nms{boxes}", f"qnms{boxes}", f"roi_align{regions}"):
        library.define(signature)
    library.impl("nms", _best_boxes, "CPU")
    library.impl("roi_align", _region_means, "CPU")
    _LIBRARIES.append(library)


def _best_boxes(boxes: Any, scores: Any, threshold: float) -> Any:
    """Greedy: from the best score on, what overlaps a box that is kept is dropped."""
    import torch
    from torchvision.ops import box_iou

    overlap = box_iou(boxes, boxes)
    kept: list[int] = []
    gone = torch.zeros(len(scores), dtype=torch.bool)
    for box in scores.argsort(descending=True).tolist():
        if not gone[box]:
            kept.append(box)
            gone |= overlap[box] > threshold
    return torch.tensor(kept, dtype=torch.int64)


def _region_means(image: Any, regions: Any, scale: float, high: int, wide: int, samples: int, aligned: bool) -> Any:
    """torchvision's own, in Python."""
    from torchvision.ops.roi_align import _roi_align

    return getattr(_roi_align, "__wrapped__", _roi_align)(image, regions, scale, high, wide, samples, aligned)


TINY = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256}
DECODER = {**TINY, "num_key_value_heads": 2, "vocab_size": 1000, "use_cache": False}
WORDS = 1000


def _ids(length: int, **more: int) -> Callable[[], Inputs]:
    """Token ids and a mask; `more` are other ids by name, with their lengths."""

    def inputs() -> Inputs:
        import torch

        ids = torch.randint(2, WORDS, (1, length))
        found = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        return found | {name: torch.randint(2, WORDS, (1, size)) for name, size in more.items()}

    return inputs


def _values(name: str, *shape: int) -> Callable[[], Inputs]:
    def inputs() -> Inputs:
        import torch

        return {name: torch.randn(*shape)}

    return inputs


def _pairs() -> Inputs:
    return {**_ids(16)(), **_values("pixel_values", 1, 3, 64, 64)()}


def _hugging(model: str, inputs: Callable[[], Inputs], config: Mapping[str, Any], **more: Any) -> TorchModule:
    """`model` is the class of transformers; its configuration class says the rest."""

    def build() -> tuple[Any, Inputs]:
        with suppress(ModuleNotFoundError):
            import_torchvision()  # transformers imports it where it is installed
        import transformers

        kind = getattr(transformers, model)
        return kind(kind.config_class(**config, **more)), inputs()

    return TorchModule(("torch", "transformers"), build)


_ENCODER = {**TINY, "vocab_size": WORDS, "max_position_embeddings": 64}
_SIDES = {
    "d_model": 128,
    "vocab_size": WORDS,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LAYERS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
_WIDE = {"encoder_ffn_dim": 256, "decoder_ffn_dim": 256}
_PATCHES = {**TINY, "image_size": 64, "patch_size": 16}
_CLIP_TEXT = {**TINY, "vocab_size": WORDS, "max_position_embeddings": 16, "eos_token_id": 2, "bos_token_id": 1}
_WAVE = {
    "conv_dim": (64, 64, 64),
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": 32,
}
_GPT = {"n_embd": 128, "n_layer": 4, "n_head": 4, "vocab_size": WORDS, "n_positions": 64, "use_cache": False}

MODULES: dict[str, TorchModule] = {
    "timm-convnext": _timm("convnext_atto", 96),
    "timm-efficientnet": _timm("efficientnet_b0", 96),
    "timm-vit": _timm("vit_tiny_patch16_224", 224, depth=4),
    "timm-swin": _timm("swin_tiny_patch4_window7_224", 224, depths=(1, 1, 2, 1), embed_dim=48, num_heads=(2, 4, 8, 16)),
    "timm-mixer": _timm("mixer_s32_224", 224),
    "timm-regnet": _timm("regnetx_002", 96),
    "timm-fastvit": _timm("fastvit_t8", 128),
    "timm-levit": _timm("levit_128s", 224),
    "timm-ghostnet": _timm("ghostnet_100", 96),
    "vision-resnet18": _vision("resnet18", 96),
    "vision-mobilenet-v3": _vision("mobilenet_v3_small", 96),
    "vision-shufflenet": _vision("shufflenet_v2_x0_5", 96),
    "vision-densenet121": _vision("densenet121", 96),
    "vision-googlenet": _vision("googlenet", 96, init_weights=False, aux_logits=False),
    "vision-deeplab": _vision("deeplabv3_mobilenet_v3_large", 96, weights_backbone=None),
    "vision-faster-rcnn": _detector("fasterrcnn_mobilenet_v3_large_320_fpn", 160),
    "vision-mask-rcnn": _detector("maskrcnn_resnet50_fpn", 160, min_size=160, max_size=320),
    "vision-retinanet": _detector("retinanet_resnet50_fpn", 160, min_size=160, max_size=320),
    "bert": _hugging("BertModel", _ids(32), _ENCODER),
    "distilbert": _hugging(
        "DistilBertModel", _ids(32), {"dim": 128, "n_layers": 3, "n_heads": 4, "hidden_dim": 256, "vocab_size": WORDS}
    ),
    "roberta": _hugging("RobertaModel", _ids(32), _ENCODER),
    "electra": _hugging("ElectraModel", _ids(32), {**_ENCODER, "embedding_size": 64}),
    "albert": _hugging("AlbertModel", _ids(32), {**_ENCODER, "embedding_size": 64}),
    "gpt2": _hugging("GPT2LMHeadModel", _ids(24), _GPT),
    "gpt-neox": _hugging("GPTNeoXForCausalLM", _ids(24), {**_ENCODER, "use_cache": False}),
    "llama": _hugging("LlamaForCausalLM", _ids(24), DECODER),
    "mistral": _hugging("MistralForCausalLM", _ids(24), DECODER),
    "qwen2": _hugging("Qwen2ForCausalLM", _ids(24), DECODER),
    "phi": _hugging("PhiForCausalLM", _ids(24), {**DECODER, "num_key_value_heads": 4}),
    "gemma": _hugging("GemmaForCausalLM", _ids(24), {**DECODER, "head_dim": 32}),
    "mixtral": _hugging("MixtralForCausalLM", _ids(24), {**DECODER, "num_local_experts": 4, "num_hidden_layers": 2}),
    "opt": _hugging(
        "OPTForCausalLM",
        _ids(24),
        {**TINY, "ffn_dim": 256, "vocab_size": WORDS, "word_embed_proj_dim": 128, "use_cache": False},
    ),
    "bloom": _hugging(
        "BloomForCausalLM",
        _ids(24),
        {"hidden_size": 128, "n_layer": 3, "n_head": 4, "vocab_size": WORDS},
        use_cache=False,
    ),
    "mamba": _hugging(
        "MambaForCausalLM",
        _ids(12),
        {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": WORDS, "state_size": 8, "use_cache": False},
    ),
    "t5": _hugging(
        "T5ForConditionalGeneration",
        _ids(24, decoder_input_ids=8),
        {"d_model": 128, "num_layers": 3, "num_heads": 4, "d_kv": 32, "d_ff": 256, "vocab_size": WORDS},
        use_cache=False,
    ),
    "bart": _hugging("BartModel", _ids(24, decoder_input_ids=8), {**_SIDES, **_LAYERS, **_WIDE}),
    "whisper-encoder": _hugging(
        "WhisperForAudioClassification",
        _values("input_features", 1, 80, 200),
        {**_SIDES, **_LAYERS, **_WIDE, "max_source_positions": 100},
    ),
    "wav2vec2": _hugging("Wav2Vec2ForCTC", _values("input_values", 1, 4000), {**TINY, **_WAVE}),
    "vit": _hugging("ViTModel", _values("pixel_values", 1, 3, 64, 64), _PATCHES),
    "dinov2": _hugging("Dinov2Model", _values("pixel_values", 1, 3, 64, 64), _PATCHES),
    "segformer": _hugging(
        "SegformerForSemanticSegmentation",
        _values("pixel_values", 1, 3, 64, 64),
        {"hidden_sizes": (16, 32, 64, 128), "depths": (1, 1, 1, 1), "num_attention_heads": (1, 2, 4, 8)},
        decoder_hidden_size=64,
    ),
    "clip": _hugging("CLIPModel", _pairs, {"text_config": _CLIP_TEXT, "vision_config": _PATCHES, "projection_dim": 64}),
}
"""Name -> module."""
