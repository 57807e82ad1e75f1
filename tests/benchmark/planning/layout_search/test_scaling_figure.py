"""The picture shows what the table says."""

import xml.etree.ElementTree as ET

from benchmark.planning.layout_search.scaling_figure import scaling_svg
from benchmark.planning.layout_search.scaling_table import ScaledRun
from benchmark.planning.step_model.simulated_step import StepParts

PARTS = StepParts(*[1.0] * 12)


def run(devices: int, mfu: float) -> ScaledRun:
    return ScaledRun(devices, 2048, "TP 4", PARTS, mfu, 1.0, 1.0)


def test_lines_fall_where_utilisation_falls() -> None:
    picture = ET.fromstring(scaling_svg([("constant", [run(512, 0.5), run(1024, 0.3)]), ("growing", [run(512, 0.5)])]))
    lines = [element for element in picture.iter() if element.tag.endswith("polyline")]
    (left, right) = [tuple(map(float, point.split(","))) for point in str(lines[0].get("points")).split()]
    assert left[0] < right[0]
    assert left[1] < right[1]  # down
    texts = {element.text for element in picture.iter() if element.tag.endswith("text")}
    assert {"512", "1,024", "constant", "growing", "50 %"} <= texts
