"""Draw rooms on their floors as an SVG picture that needs no script, no font and no network.

An arrow that a longer way implies is left out: where A imports B and B imports C, no arrow runs from A to C.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

WIDTH, HEIGHT, GAP, FLOOR, MARGIN = 156, 38, 14, 84, 12
"""Sizes in pixels: a room, the space beside it, from floor to floor, and around the picture."""
STYLE = """
  .paper { fill: #ffffff } .room { fill: #e8eef7; stroke: #4a6fa5 } .way { stroke: #4a6fa5; fill: none }
  .tip { fill: #4a6fa5 } text { font: 16px sans-serif; fill: #1c2733 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #1d222b } .room { fill: #2c3a4f; stroke: #8fb0de } .way { stroke: #8fb0de }
    .tip { fill: #8fb0de } text { fill: #eef2f7 }
  }
"""


def direct_arrows(arrows: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
    """Return the arrows that no longer way implies. The arrows form no circle."""
    below: dict[str, set[str]] = {}
    for start, end in arrows:
        below.setdefault(start, set()).add(end)

    def reachable(room: str) -> set[str]:
        return {end for direct in below.get(room, ()) for end in {direct, *reachable(direct)}}

    return [
        (start, end) for start, end in arrows if not any(end in reachable(room) for room in below[start] if room != end)
    ]


def placed(rows: Sequence[Sequence[str]], arrows: Sequence[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Return the middle of each room, x and y; rows begin with the highest floor.

    An arrow past a floor gets a place of its own there, so that it runs beside the rooms and not behind them. Such a
    place has the arrow's name and the floor's number.
    """
    level = {room: number for number, row in enumerate(rows) for room in row}
    places = [list(row) for row in rows]
    neighbours: dict[str, list[str]] = {room: [] for room in level}
    for start, end in arrows:
        way = [start, *(place_on_floor(start, end, number) for number in range(level[start] + 1, level[end])), end]
        for number, place in enumerate(way[1:-1], level[start] + 1):
            places[number].append(place)
            neighbours[place] = []
        for upper, lower in pairwise(way):
            neighbours[upper].append(lower)
            neighbours[lower].append(upper)
    order = {place: float(number) for row in places for number, place in enumerate(row)}
    for _ in range(8):
        for row in places:
            row.sort(key=lambda place: sum(order[each] for each in neighbours[place]) / max(1, len(neighbours[place])))
            order |= {place: number - (len(row) - 1) / 2 for number, place in enumerate(row)}
    widths = [sum(width_of(place) for place in row) + GAP * (len(row) - 1) for row in places]
    found = {}
    for number, row in enumerate(places):
        x = MARGIN + (max(widths) - widths[number]) / 2
        for place in row:
            found[place] = (x + width_of(place) / 2, MARGIN + HEIGHT / 2 + number * FLOOR)
            x += width_of(place) + GAP
    return found


def place_on_floor(start: str, end: str, number: int) -> str:
    return f"{start} > {end} @{number}"


def width_of(place: str) -> int:
    return 12 if "@" in place else WIDTH


def svg_lines(title: str, rows: Sequence[Sequence[str]], arrows: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """Yield the lines of the picture; rows begin with the highest floor."""
    ways = direct_arrows(arrows)
    places = placed(rows, ways)
    level = {room: number for number, row in enumerate(rows) for room in row}
    wide = max(x + width_of(place) / 2 for place, (x, _) in places.items()) + MARGIN
    high = 2 * MARGIN + HEIGHT + (len(rows) - 1) * FLOOR
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" width="{wide:.0f}" height="{high}">'
    yield f"<title>{title}</title>\n<style>{STYLE}</style>"
    yield f'<rect class="paper" width="{wide:.0f}" height="{high}" rx="8"/>'
    yield '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    yield '<path class="tip" d="M0 0L8 4L0 8z"/></marker>'
    for start, end in ways:
        stops = [places[place_on_floor(start, end, number)] for number in range(level[start] + 1, level[end])]
        points = [places[start], *stops, places[end]]
        path = f"M{points[0][0]:.0f} {points[0][1] + HEIGHT / 2:.0f}"
        for (x, y), (to_x, to_y) in pairwise(points):
            from_y, end_y = y + HEIGHT / 2, to_y - HEIGHT / 2
            bend = (from_y + end_y) / 2
            path += f"C{x:.0f} {bend:.0f} {to_x:.0f} {bend:.0f} {to_x:.0f} {end_y:.0f}"
            path += f"V{to_y + HEIGHT / 2:.0f}" if (to_x, to_y) != points[-1] else ""
        yield f'<path class="way" d="{path}" marker-end="url(#tip)"/>'
    for room in level:
        x, y = places[room]
        corner = f'x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}"'
        yield f'<rect class="room" {corner} width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        yield f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle">{room.split(".")[-1]}</text>'
    yield "</svg>"
