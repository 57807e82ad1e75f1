"""Compute the time of messages: a time per hop plus bytes over bandwidth, by the links that they cross."""

import math

from benchmark.planning.step_model.machine_constants import Rates


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


def send_s(rates: Rates, size: float, *, stride: int, per_node: int) -> float:
    """Return the seconds of a message to the device ``stride`` positions further on."""
    if stride < per_node and per_node % stride == 0 and stride * 2 <= per_node:
        return size / (rates.device.nvlink_gb_s * 1e9) + rates.device.nvlink_latency_us * 1e-6
    return size / (rates.network_gb_s * 1e9) + 2 * rates.common.network_hop_us * 1e-6


def sum_small_s(rates: Rates, *, devices: int, per_node: int) -> float:
    """Return the seconds of an all-reduce of one number over all devices: up and down a tree."""
    hops = 2 * math.ceil(math.log2(max(2.0, devices / per_node)))
    return hops * rates.common.network_hop_us * 1e-6 + 2 * rates.device.nvlink_latency_us * 1e-6
