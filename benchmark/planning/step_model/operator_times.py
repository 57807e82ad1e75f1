"""Compute the time of single operations on a device; seconds, bytes and FLOPs are those of one device."""

import math
from functools import lru_cache

from benchmark.planning.step_model.machine_constants import CommonRates, DeviceRates

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.9), (256, 64, 0.85), (64, 256, 0.85), (64, 64, 0.6))
"""Rows and columns of a multiprocessor's tile, and its speed relative to the best tile's; libraries choose the fastest
tile for the shape."""
FLASH_FILL, FLASH_FILL_BACKWARD = 384.0, 640.0
"""Sequence lengths at which FlashAttention's passes reach half their speed: forward 57 % at 512 and 84 % at 2,048, as
in the figures of arXiv 2307.08691 and 2407.08608; both passes together reach 163 TFLOP/s at 512 and 265 at 2,048, of
about 340."""
CUDNN_SPEEDUP = 1.6
"""cuDNN's attention over FlashAttention 2 on Hopper and newer: forward 484 over 298, backward 465 over 291 TFLOP/s for
2,048 tokens (arXiv 2407.08608, figures); on an A100 they are alike."""
WGMMA_MULTIPROCESSORS = 114
"""Devices with at least so many multiprocessors are Hopper or newer."""
ATTENTION_HEAD = 128
"""Head size at which the rates are measured; a head of half the size takes 1.3 times as long (same curves)."""


def matmul_s(
    device: DeviceRates, common: CommonRates, sizes: tuple[int, int, int], *, fp8: bool, extra: float
) -> float:
    """Return the seconds of a product [M, K] x [K, N].

    The rate is that of endless products, less the idle part of the last wave of tiles and the beginning and end of each
    tile. ``extra``: bytes read and written besides operands and a BF16 result (FP32 accumulation); they travel while
    the multiprocessors compute, but not for nothing: both times are combined as the root of their squares' sum.
    """
    rate = device.matmul_fp8 if fp8 else device.matmul_bf16
    fill = common.matmul_fill_fp8 if fp8 else common.matmul_fill
    compute_s = (
        2.0 * math.prod(sizes) / (rate * 1e12 * _efficiency(*sizes, device.multiprocessors, fill, common.wave_waste))
    )
    rows, columns, depth = sizes
    moved = (1 if fp8 else 2) * (rows + columns) * depth + 2 * rows * columns + extra
    return math.hypot(compute_s, moved / (device.memory_tb_s * 1e12)) + common.kernel_gap_us * 1e-6


@lru_cache(100_000)
def _efficiency(rows: int, columns: int, depth: int, multiprocessors: float, fill: float, wave_waste: float) -> float:
    best = 0.0
    for tile_rows, tile_columns, speed in TILES:
        tiles = math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns)
        filled = rows * columns / (tiles * tile_rows * tile_columns)
        waves = tiles / multiprocessors
        used = waves / math.ceil(waves)
        best = max(best, speed * filled * (1 - wave_waste * (1 - used)))
    return best * depth / (depth + fill)


def attention_s(
    device: DeviceRates, common: CommonRates, *, sequences: float, heads: float, seq: int, head: int, kind: str
) -> tuple[float, float]:
    """Return the seconds of causal attention, forward and backward, with kernels that keep no scores.

    Only work below the diagonal counts: 2 S^2 FLOPs per number of the hidden state forward, 2.5 times that backward.
    """
    flops = 2.0 * sequences * heads * head * seq * seq
    speed = min(1.0, (head / ATTENTION_HEAD) ** 0.4)
    if kind == "cudnn" and device.multiprocessors >= WGMMA_MULTIPROCESSORS:
        speed *= CUDNN_SPEEDUP
    gap_s = common.kernel_gap_us * 1e-6
    forward_s = flops / (device.attention_forward * 1e12 * speed) * (seq + FLASH_FILL) / seq
    backward_s = 2.5 * flops / (device.attention_backward * 1e12 * speed) * (seq + FLASH_FILL_BACKWARD) / seq
    return forward_s + gap_s, backward_s + 3 * gap_s


def elementwise_s(device: DeviceRates, common: CommonRates, moved: float, kernels: int) -> float:
    """Return the seconds of ``kernels`` that together read and write ``moved`` bytes."""
    return moved / (device.memory_tb_s * 1e12) + kernels * common.kernel_gap_us * 1e-6
