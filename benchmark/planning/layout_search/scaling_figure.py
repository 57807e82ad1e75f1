"""The scaling table as a picture: utilisation over the number of GPUs, as SVG without any library."""

import math
from collections.abc import Sequence

from benchmark.planning.layout_search.scaling_table import ScaledRun

WIDTH, HEIGHT, MARGIN = 640, 360, 48
COLOURS = ("#b2182b", "#2166ac")
LINES = (10, 20, 30, 40, 50, 60)
"""Per cent that a line is drawn at."""


def scaling_svg(series: Sequence[tuple[str, Sequence[ScaledRun]]]) -> str:
    """One line for each named series; the horizontal axis doubles from tick to tick."""
    devices = sorted({run.devices for _, runs in series for run in runs})
    first, last = math.log2(devices[0]), math.log2(devices[-1])

    def place(count: int, mfu: float) -> tuple[float, float]:
        across = MARGIN + (WIDTH - 2 * MARGIN) * (math.log2(count) - first) / max(last - first, 1e-9)
        return across, HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * mfu * 100 / LINES[-1]

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="24">MFU of the fastest layout, GPT-3 175B in BF16 on H100, as simulated</text>',
    ]
    for per_cent in LINES:
        x, y = place(devices[0], per_cent / 100)
        parts.append(f'<line x1="{x}" y1="{y:.1f}" x2="{WIDTH - MARGIN}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x - 8}" y="{y + 4:.1f}" text-anchor="end">{per_cent} %</text>')
    for count in devices:
        x, y = place(count, 0)
        parts.append(f'<text x="{x:.1f}" y="{y + 20:.1f}" text-anchor="middle">{count:,}</text>')
    for number, ((name, runs), colour) in enumerate(zip(series, COLOURS, strict=False)):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(run.devices, run.mfu) for run in runs))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        below = HEIGHT - MARGIN - 36 + 18 * number
        parts.append(f'<text x="{MARGIN + 12}" y="{below}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
