"""From a torch module to files: both exporters, ORT's quantisers and optimiser, OpenVINO IR, genai's builder.

In: `MODULES`. Out: one `Source` for every module and way. Simplified: an export is for the shapes of its inputs, but
for one way, whose batch and length stay open.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.models.modules import MODULES
from benchmarks.models.source import Made, Source, feeds_of

__all__ = ["DERIVED"]


def _wrapped(module: Any, names: list[str]) -> Any:
    """Inputs by position, tensors out: what both exporters take."""
    import torch

    class Plain(torch.nn.Module):  # type: ignore[misc]
        """A module whose inputs have an order."""

        def __init__(self) -> None:
            super().__init__()
            self.model = module

        def forward(self, *values: Any) -> Any:
            """All tensors that come out, in order."""
            given = dict(zip(names, values, strict=True))
            found = self.model(*values) if names == ["image"] else self.model(**given)
            return tuple(_tensors(found))

    return Plain().eval()


def _tensors(found: Any) -> list[Any]:
    import torch

    if isinstance(found, torch.Tensor):
        return [found]
    parts = found.values() if isinstance(found, Mapping) else found if isinstance(found, tuple | list) else []
    return [tensor for part in parts for tensor in _tensors(part)]


def _exported(name: str, folder: Path, *, dynamo: bool, opened: bool = False) -> Made:
    """A module as ONNX; with `opened`, batch and length have names instead of sizes."""
    import torch

    module, inputs = MODULES[name].made()
    names = list(inputs)
    plain, path = _wrapped(module, names), folder / f"{name}.onnx"
    more: dict[str, Any] = {} if dynamo else {"opset_version": 17}
    if opened:
        more["dynamic_axes"] = {each: {0: "batch", 1: "target" if "decoder" in each else "length"} for each in names}
    with _quiet(), torch.no_grad():
        torch.onnx.export(plain, tuple(inputs.values()), str(path), input_names=names, dynamo=dynamo, **more)
    feeds = {each: value.numpy() for each, value in inputs.items()}
    kept = _kept_inputs(path)
    shapes = {each: values.shape for each, values in feeds.items() if opened and each in kept}
    return Made(
        path, shapes, {each: values for each, values in feeds.items() if each in kept}, plain, (*inputs.values(),)
    )


def _kept_inputs(path: Path) -> set[str]:
    """An exporter drops inputs that nothing reads."""
    import onnx

    return {value.name for value in onnx.load(str(path), load_external_data=False).graph.input}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters tell a lot."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _quantised(name: str, folder: Path) -> Made:
    """Weights as int8, activations quantised while it runs."""
    from onnxruntime.quantization import quantize_dynamic

    made = _exported(name, folder, dynamo=False)
    path = folder / "quantised.onnx"
    with _quiet():
        quantize_dynamic(str(made.path), str(path))
    return Made(path, made.shapes, made.feeds, made.module, made.inputs)


def _calibrated(name: str, folder: Path) -> Made:
    """QuantizeLinear and DequantizeLinear around everything, from one calibration input."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    made = _exported(name, folder, dynamo=False)

    class Once(CalibrationDataReader):  # type: ignore[misc]
        """One input."""

        def __init__(self) -> None:
            self.left = [made.feeds]

        def get_next(self) -> Any:
            """It, then nothing."""
            return self.left.pop() if self.left else None

    path = folder / "calibrated.onnx"
    with _quiet():
        quantize_static(str(made.path), str(path), Once(), quant_format=QuantFormat.QDQ)
    return Made(path, made.shapes, made.feeds, made.module, made.inputs)


def _fused(name: str, folder: Path, *, family: str, half: bool = False) -> Made:
    """By ORT's optimiser of transformers: its own ops take the place of many."""
    from onnxruntime.transformers import optimizer

    made = _exported(name, folder, dynamo=False)
    path = folder / "fused.onnx"
    with _quiet():
        found = optimizer.optimize_model(str(made.path), model_type=family, num_heads=4, hidden_size=128, opt_level=0)
        if half:
            found.convert_float_to_float16(keep_io_types=True)
        found.save_model_to_file(str(path))
    return Made(path, made.shapes, made.feeds, made.module, made.inputs)


def _openvino(name: str, folder: Path, *, half: bool) -> Made:
    """As IR, converted from the module's ONNX file; `half` is OpenVINO's default."""
    import openvino

    made = _exported(name, folder, dynamo=False)
    path = folder / "model.xml"
    with _quiet():
        openvino.save_model(openvino.convert_model(str(made.path)), str(path), compress_to_fp16=half)
    return Made(path, {}, made.feeds, made.module, made.inputs)


CACHED, NEW = 16, 4
"""Tokens in the caches of a genai file, and tokens that come in."""


def _genai(name: str, folder: Path, *, precision: str) -> Made:
    """By genai's own builder, from a folder as Hugging Face has them; caches grow from input to output."""
    module, _ = MODULES[name].made()  # first of all: it makes transformers importable
    from onnxruntime_genai.models import builder
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    module.config.use_cache = True
    home, target, cache = (str(folder / part) for part in ("home", "genai", "cache"))
    words = {f"w{number}": number for number in range(module.config.vocab_size)}
    tokens = Tokenizer(models.WordLevel(words, unk_token="w0"))
    with _quiet():
        module.save_pretrained(home)
        fast = PreTrainedTokenizerFast(tokenizer_object=tokens, unk_token="w0", bos_token="w1", eos_token="w2")
        fast.save_pretrained(home)
        options = builder.parse_extra_options(home, home, target, precision, "cpu", cache, [])
        builder.create_model(home, home, target, precision, "cpu", cache, **options)
    path = Path(target) / "model.onnx"
    wide = getattr(module.config, "head_dim", None) or module.config.hidden_size // module.config.num_attention_heads
    dims = {"batch_size": 1, "sequence_length": NEW, "total_sequence_length": CACHED + NEW}
    dims |= {"past_sequence_length": CACHED, "kv_cache_dim": wide}
    shapes, feeds = feeds_of(path, {}, {}, dims, most=1000)
    return Made(path, shapes, feeds)


def _live(name: str, folder: Path) -> Made:
    module, inputs = MODULES[name].made()
    return Made(module=module, inputs=tuple(inputs.values()) if list(inputs) == ["image"] else inputs)


def _source(way: str, kind: str, make: Callable[..., Made], needs: tuple[str, ...], name: str, **more: Any) -> Source:
    packages = tuple(dict.fromkeys((*MODULES[name].packages, *needs)))
    return Source(f"{name}, {way}", kind, packages, partial(make, name, **more))


LEGACY = (
    "timm-efficientnet timm-swin timm-levit timm-fastvit vision-resnet18 vision-shufflenet vision-googlenet "
    "vision-deeplab vision-faster-rcnn vision-mask-rcnn vision-retinanet bert albert gpt2 llama opt "
    "mamba t5 whisper-encoder wav2vec2 clip segformer"
)
DYNAMO = (
    "timm-convnext timm-vit timm-mixer timm-regnet timm-ghostnet vision-mobilenet-v3 vision-densenet121 distilbert "
    "roberta electra gpt-neox mistral qwen2 phi gemma bloom bart vit dinov2"
)
OPENED = "bert roberta gpt2 llama t5"
QUANTISED = "bert gpt2 vision-resnet18 wav2vec2 timm-vit"
CALIBRATED = "vision-mobilenet-v3 vision-resnet18 bert timm-efficientnet"
FUSED = {"bert": "bert", "roberta": "bert", "gpt2": "gpt2", "t5": "t5", "vit": "vit", "bart": "bart", "clip": "clip"}
GENAI = {
    "llama": ("fp32", "int4"),
    "qwen2": ("fp32", "int4"),
    "mistral": ("fp32",),
    "phi": ("fp32",),
    "gemma": ("int4",),
}
OPENVINO = "vision-resnet18 timm-efficientnet bert gpt2 timm-swin"
OPENVINO_HALF = "vision-mobilenet-v3 timm-vit llama t5 segformer"
LIVE = "timm-convnext vision-resnet18 bert gpt2 llama vit"

DERIVED: list[Source] = [
    *(_source("legacy", "torch export, legacy", _exported, (), each, dynamo=False) for each in LEGACY.split()),
    *(
        _source("open", "torch export, legacy", _exported, (), each, dynamo=False, opened=True)
        for each in OPENED.split()
    ),
    *(
        _source("dynamo", "torch export, dynamo", _exported, ("onnxscript",), each, dynamo=True)
        for each in DYNAMO.split()
    ),
    *(_source("int8", "ORT-quantised", _quantised, ("onnxruntime",), each) for each in QUANTISED.split()),
    *(_source("QDQ", "ORT-quantised", _calibrated, ("onnxruntime",), each) for each in CALIBRATED.split()),
    *(_source("fused", "ORT-fused", _fused, ("onnxruntime",), each, family=family) for each, family in FUSED.items()),
    _source("fused fp16", "ORT-fused", _fused, ("onnxruntime",), "bert", family="bert", half=True),
    *(
        _source(f"genai {precision}", "genai builder", _genai, ("onnxruntime-genai",), each, precision=precision)
        for each, precisions in GENAI.items()
        for precision in precisions
    ),
    *(_source("IR", "OpenVINO IR", _openvino, ("openvino",), each, half=False) for each in OPENVINO.split()),
    *(_source("IR fp16", "OpenVINO IR", _openvino, ("openvino",), each, half=True) for each in OPENVINO_HALF.split()),
    *(_source("live", "live module", _live, (), each) for each in LIVE.split()),
]
"""All sources that are made of modules."""
