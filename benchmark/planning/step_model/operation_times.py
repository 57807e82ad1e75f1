"""Compute the time of single operations on a device and of messages between devices.

Seconds, bytes and FLOPs are those of one device. A message takes a time per hop plus bytes over bandwidth, by the links
that it crosses.
"""

import math
from functools import lru_cache

from benchmark.planning.step_model.machine_constants import Rates

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.9), (256, 64, 0.85), (64, 256, 0.85), (64, 64, 0.6))
"""Rows and columns of a multiprocessor's tile, and its speed relative to the best tile's; libraries choose the fastest
tile for the shape."""
FLASH_FILL, FLASH_FILL_BACKWARD = 384.0, 640.0
"""Sequence lengths at which FlashAttention's passes reach half their speed, by the figures of arXiv 2307.08691 and
2407.08608. The forward pass reaches 57 % at 512 and 84 % at 2,048; both passes together reach 163 TFLOP/s at 512 and
265 at 2,048, of about 340."""
CUDNN_SPEEDUP = 1.6
"""cuDNN's attention over FlashAttention 2 on Hopper and newer: forward 484 over 298, backward 465 over 291 TFLOP/s for
2,048 tokens (arXiv 2407.08608, figures); on an A100 they are alike."""
WGMMA_MULTIPROCESSORS = 114
"""Devices with at least so many multiprocessors are Hopper or newer."""
ATTENTION_HEAD = 128
"""Head size at which the rates are measured; a head of half the size takes 1.3 times as long (same curves)."""


def matmul_s(rates: Rates, sizes: tuple[int, int, int], *, fp8: bool = False, extra: float = 0.0) -> float:
    """Return the seconds of a product [M, K] x [K, N].

    The rate is that of endless products, less the idle part of the last wave of tiles and the beginning and end of each
    tile. ``extra``: bytes read and written besides operands and a BF16 result (FP32 accumulation); they travel while
    the multiprocessors compute, but not for nothing: both times are combined as the root of their squares' sum.
    """
    device, common = rates.device, rates.common
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


def attention_s(rates: Rates, *, sequences: float, heads: float, seq: int, head: int, kind: str) -> tuple[float, float]:
    """Return the seconds of causal attention, forward and backward, with kernels that keep no scores.

    Only work below the diagonal counts: 2 S^2 FLOPs per number of the hidden state forward, 2.5 times that backward.
    """
    device = rates.device
    flops = 2.0 * sequences * heads * head * seq * seq
    speed = min(1.0, (head / ATTENTION_HEAD) ** 0.4)
    if kind == "cudnn" and device.multiprocessors >= WGMMA_MULTIPROCESSORS:
        speed *= CUDNN_SPEEDUP
    gap_s = rates.common.kernel_gap_us * 1e-6
    forward_s = flops / (device.attention_forward * 1e12 * speed) * (seq + FLASH_FILL) / seq
    backward_s = 2.5 * flops / (device.attention_backward * 1e12 * speed) * (seq + FLASH_FILL_BACKWARD) / seq
    return forward_s + gap_s, backward_s + 3 * gap_s


def elementwise_s(rates: Rates, moved: float, kernels: int) -> float:
    """Return the seconds of ``kernels`` that together read and write ``moved`` bytes."""
    return moved / (rates.device.memory_tb_s * 1e12) + kernels * rates.common.kernel_gap_us * 1e-6


def gather_s(rates: Rates, size: float, *, ranks: int, stride: int, per_node: int) -> float:
    """Return the seconds of an all-gather or reduce-scatter whose larger side has ``size`` bytes, along a ring.

    ``ranks`` lie ``stride`` devices apart, numbered through the nodes. Within a node NVLink carries them. Between
    nodes each device has a network card, and the ring enters and leaves a node by all cards of its ranks there.
    An all-reduce is one of each.
    """
    if ranks == 1:
        return 0.0
    share = size * (ranks - 1) / ranks
    local = max(1, min(ranks, per_node // stride))
    device = rates.device
    small = device.nvlink_latency_us * 1e-6
    nvlink_s = share / (device.nvlink_gb_s * 1e9) + rates.common.message_half_mb * 1e6 / (device.nvlink_gb_s * 1e9)
    if local == ranks:
        return small + nvlink_s
    nodes = math.ceil(ranks / local)
    cards_s = share / (local * rates.network_gb_s * 1e9)
    return max(cards_s, share / (device.nvlink_gb_s * 1e9)) + small + nodes * rates.common.network_hop_us * 1e-6


def maximum_s(rates: Rates, *, ranks: int, per_node: int) -> float:
    """Return the seconds in which consecutive ranks find the largest of their numbers."""
    if ranks == 1:
        return 0.0
    hops = 2 * (ranks > per_node)
    return rates.device.nvlink_latency_us * 1e-6 + hops * rates.common.network_hop_us * 1e-6


def send_s(rates: Rates, size: float, *, stride: int, per_node: int) -> float:
    """Return the seconds of a message to the device ``stride`` positions further on."""
    if stride < per_node and per_node % stride == 0 and stride * 2 <= per_node:
        return size / (rates.device.nvlink_gb_s * 1e9) + rates.device.nvlink_latency_us * 1e-6
    return size / (rates.network_gb_s * 1e9) + 2 * rates.common.network_hop_us * 1e-6


def exposed_s(rates: Rates, messages_s: float, *, share: float, beside_s: float) -> float:
    """Return the exposed seconds of messages of which computation of ``beside_s`` can hide a share, plus the
    computation's slowdown by the hidden ones."""
    hidden = min(messages_s * share, beside_s)
    return messages_s - hidden + rates.stack.overlap_slowdown * hidden


def sum_small_s(rates: Rates, *, devices: int, per_node: int) -> float:
    """Return the seconds of an all-reduce of one number over all devices: up and down a tree."""
    hops = 2 * math.ceil(math.log2(max(2.0, devices / per_node)))
    return hops * rates.common.network_hop_us * 1e-6 + 2 * rates.device.nvlink_latency_us * 1e-6
