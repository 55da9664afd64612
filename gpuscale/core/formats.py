"""The table of number formats: bits and scales of an element, and how products in it run.

OCP Microscaling Formats (MX) Specification 1.0, 2023; each row cites its own source.
"""

from __future__ import annotations

import re

from gpuscale.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """One number format, or one way to store weights.

    `rate` is the format whose data sheet rate its products run at, "" where the elements are
    widened to 16 bits before they are multiplied; `measured_as` are the formats whose measured
    constants serve where it has none of its own, nearest first.
    """

    name: str
    bits: float  # of one element, without scales
    scale_bits: float  # scales and zero points, mean per element
    rate: str
    measured_as: tuple[str, ...]
    source: str
    stored_as: str = ""  # format in which files keep such weights, where that is another one
    edges: str = "bf16"  # format of the output head in such files; the embedding likewise

    @property
    def bytes(self) -> float:
        """Bytes of one element with its scales. [byte]."""
        return (self.bits + self.scale_bits) / 8

    @property
    def block_scaled(self) -> bool:
        """Whether blocks of elements have scales of their own."""
        return self.scale_bits > 0.0


_IEEE = "IEEE 754"
_MX = "OCP Microscaling Formats 1.0, section 5: one 8-bit scale per 32 elements"
_GGUF = "llama.cpp, quantize README, bits per weight of Llama 2 7B"
_GGUF3 = "llama.cpp, tools/quantize/README.md, bits per weight of Llama 3.1 8B"
_V3 = "DeepSeek-V3 report, section 3.3.2: an fp32 scale per 128 x 128"
_GPTQ = "GPTQ, AWQ: an fp16 scale per 128 weights, and with 4 bits a 4-bit zero point"
_QLORA = "QLoRA, arXiv:2305.14314, sections 2 and 3: an fp32 constant per 64 weights, or 0.127 bit"
_INT8 = ("fp8", "fp8-block", "bf16")
_EIGHT = ("fp8-block", "fp8", "bf16")


def _gguf(name: str, per_weight: float, source: str = _GGUF3) -> Format:
    """Format of a GGUF file by its mean bits a weight, embedding and head included.

    The output head is kept in q6_k where the mean is narrower (llama.cpp, `llama-quant.cpp`).
    """
    bits = int(per_weight)
    head = name if per_weight > 6.0 else "q6_k"
    return Format(
        name=name,
        bits=bits,
        scale_bits=round(per_weight - bits, 4),
        rate="",
        measured_as=(),
        source=f"{source}: {per_weight}",
        edges=head,
    )


_ROWS = (
    Format("fp64", 64, 0, "fp64", (), _IEEE),
    Format("fp32", 32, 0, "fp32", (), _IEEE),
    Format("tf32", 32, 0, "tf32", ("bf16",), "stored as fp32; 19 bits are multiplied"),
    Format("bf16", 16, 0, "bf16", (), "upper half of IEEE 754 single precision"),
    Format("fp16", 16, 0, "fp16", ("bf16",), _IEEE),
    Format("int8", 8, 0, "int8", _INT8, "a scale per channel: below 0.1 %"),
    Format(
        "fp8", 8, 0, "fp8", ("fp8-block", "bf16"), "OCP 8-bit Floating Point 1.0; a scale a tensor"
    ),
    Format("fp8-block", 8, 32 / 128**2, "fp8", ("fp8", "bf16"), _V3),
    Format("mxfp8", 8, 8 / 32, "fp8", _EIGHT, _MX),
    Format(
        name="int4",
        bits=4,
        scale_bits=0,
        rate="int8",
        measured_as=("nvfp4", *_EIGHT),
        source="elements alone",
        stored_as="int4-g128",
    ),
    Format("fp4", 4, 0, "fp4", ("nvfp4", *_EIGHT), "elements alone, E2M1"),
    Format("mxfp4", 4, 8 / 32, "fp4", ("nvfp4", *_EIGHT), _MX),
    Format("nvfp4", 4, 8 / 16, "fp4", _EIGHT, "NVFP4 of Blackwell: an E4M3 scale per 16 elements"),
    Format("int8-g128", 8, 16 / 128, "", (), _GPTQ),
    Format("int4-g128", 4, (16 + 4) / 128, "", (), _GPTQ),
    Format("int4-g32", 4, 16 / 32, "", (), "Kimi-K2.5 checkpoint: a bf16 scale per 32 weights"),
    Format("nf4", 4, 32 / 64, "", (), _QLORA),
    Format("nf4-dq", 4, 8 / 64 + 32 / (64 * 256), "", (), _QLORA),
    _gguf("q8_0", 8.5, "llama.cpp, block_q8_0: an fp16 scale per 32 weights"),
    _gguf("q6_k", 6.5625, "llama.cpp, block_q6_K: 210 bytes per 256 weights"),
    _gguf("q5_k_m", 5.7036),
    _gguf("q5_k_s", 5.5704),
    _gguf("q5_1", 6.0, "llama.cpp, block_q5_1: 24 bytes per 32 weights"),
    _gguf("q5_0", 5.5, "llama.cpp, block_q5_0: 22 bytes per 32 weights"),
    _gguf("q4_k_m", 4.8944),
    _gguf("q4_k_s", 4.6672),
    _gguf("q4_1", 5.1216),
    _gguf("q4_0", 4.5, "llama.cpp, block_q4_0: 18 bytes per 32 weights"),
    _gguf("iq4_nl", 4.6818),
    _gguf("iq4_xs", 4.4597),
    _gguf("q3_k_l", 4.2979),
    _gguf("q3_k_m", 3.91, _GGUF),
    _gguf("q3_k_s", 3.6429),
    _gguf("iq3_m", 3.7628),
    _gguf("iq3_s", 3.6606),
    _gguf("iq3_xs", 3.4977),
    _gguf("iq3_xxs", 3.2548),
    _gguf("q2_k", 3.1593),
    _gguf("q2_k_s", 2.9697),
    _gguf("iq2_m", 2.9294),
    _gguf("iq2_s", 2.7403),
    _gguf("iq2_xs", 2.5882),
    _gguf("iq2_xxs", 2.3824),
    _gguf("iq1_m", 2.1460),
    _gguf("iq1_s", 2.0042),
)

FORMATS: dict[str, Format] = {row.name: row for row in _ROWS}
"""Every format, those with a rate from the slowest matrix unit to the fastest."""

RATE_ORDER = tuple(name for name, f in FORMATS.items() if f.rate)
"""Formats that matrix units multiply; a mixed product runs at the first."""


CALLED = {
    "awq": "int4-g128",
    "gptq": "int4-g128",
    "int4": "int4-g128",
    "w4a16": "int4-g128",
    "q4": "q4_k_m",
    "q5": "q5_k_m",
    "q6": "q6_k",
    "q8": "q8_0",
    "q3": "q3_k_m",
    "q2": "q2_k",
    "w8a8": "int8",
    "gptq-int8": "int8-g128",
    "w8a16": "int8-g128",
    "fp16": "bf16",
    "f16": "bf16",
    "half": "bf16",
    "float16": "bf16",
    "bfloat16": "bf16",
    "fp8_e4m3": "fp8",
    "fp4": "nvfp4",
    "nvfp4a16": "nvfp4",
}
"""What people call the number formats of weights."""


def format_name(name: str) -> str:
    """Format by one of its names; ``q4_k`` is a mixture's own middle size.

    >>> format_name("awq"), format_name("q4_k"), format_name("q2_k")
    ('int4-g128', 'q4_k_m', 'q2_k')
    """
    name = CALLED.get(name, name)
    return f"{name}_m" if name not in FORMATS and f"{name}_m" in FORMATS else name


_BITS = r"(\d{1,2}(?:\.\d{1,3})?)bpw"


def number_format(name: str) -> Format:
    """Look a format up.

    Raises ValueError if the format is not known.

    >>> number_format("nf4-dq").bits + number_format("nf4-dq").scale_bits
    4.126953125
    >>> number_format("2.5bpw").bytes  # a free number of bits a weight, as EXL2 has
    0.3125
    """
    found = FORMATS.get(name)
    if found is None and (bits := re.fullmatch(_BITS, name)) and 1.0 <= float(bits[1]) <= 16.0:
        return _gguf(name, float(bits[1]), "bits of a weight with its scales")
    if found is None:
        raise ValueError(f"unknown dtype {name!r}; known: {', '.join(FORMATS)}")
    return found


def element_bytes(dtype: str) -> float:
    """Bytes of one element of a number format, block scales included. [byte].

    Raises ValueError if the format is not known.

    >>> element_bytes("bf16"), element_bytes("nvfp4"), element_bytes("int4-g32")
    (2.0, 0.5625, 0.5625)
    """
    return number_format(dtype).bytes


def edge_bytes(dtype: str) -> float:
    """Bytes of a weight of embedding and head where the layers are kept in `dtype`. [byte].

    Published checkpoints leave both in 16 bits; wider formats hold for all, and a file whose bits
    are a mean over all of it counts them with the rest.

    >>> edge_bytes("fp8"), edge_bytes("fp32"), edge_bytes("q8_0")
    (2.0, 4.0, 1.0625)
    """
    known = number_format(dtype)
    if known.edges != "bf16" or dtype in ("fp32", "tf32"):
        return known.bytes
    return element_bytes("bf16")


def weight_bytes(n_params: float, dtype: str, *, scales: bool = False) -> float:
    """Bytes of weights in a number format; with `scales`, as files keep them. [byte].

    >>> [weight_bytes(671e9, d) / 1e9 for d in ("bf16", "fp8", "int4")]
    [1342.0, 671.0, 335.5]
    >>> weight_bytes(128, "int4", scales=True)  # in groups of 128, a scale and a zero point each
    66.5

    Raises ValueError if the format is not known.
    """
    known = number_format(dtype)
    if scales:
        return n_params * number_format(known.stored_as or dtype).bytes
    return n_params * known.bits / 8


def compute_dtype(x: str, w: str) -> str:
    """Format in which a product of mixed operands runs: the wider one is kept.

    Weights stored in 8 or 4 bits are widened on the way to the matrix unit; formats that no unit
    multiplies count as 16 bits.
    """
    wide = (name if number_format(name).rate else "bf16" for name in (x, w))
    return min(wide, key=RATE_ORDER.index)


def is_narrow(dtype: str) -> bool:
    """Whether an element has 8 bits or fewer."""
    return number_format(dtype).bits <= 8
