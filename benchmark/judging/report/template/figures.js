"use strict";
// Draws the figures: one uPlot per element with data-figure, of the data in the page. Colours are those of the page's CSS.
(() => {
  const { runs, figures } = JSON.parse(document.getElementById("figures").textContent);
  const byName = new Map(figures.map((figure) => [figure.name, figure]));
  const DASHES = [undefined, [7, 3], [2, 3], [8, 3, 2, 3]];
  const families = new Map();
  for (const figure of figures) if (figure.family) families.set(figure.family, [...(families.get(figure.family) || []), figure]);
  const PRINTED_WIDTH = { accuracy: 680, difference: 680, other: 330 }; // CSS pixels on a page of A4
  let charts = [];

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const small = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

  // Ticks with as many digits as tell them apart.
  function ticks(_, splits, __, ___, step) {
    const largest = Math.max(...splits.map(Math.abs));
    const digits = Math.min(15, Math.max(1, Math.floor(Math.log10(largest / step) + 1e-9) + 3));
    const decimals = Math.max(0, ...splits.map((value) => (String(+value.toPrecision(digits)).split(".")[1] || "").length));
    return splits.map((value) => {
      if (value === 0) return "0";
      if (largest >= 10000) return compact.format(value);
      return largest < 1e-4 ? (+value.toPrecision(digits)).toExponential() : value.toFixed(Math.min(decimals, 15));
    });
  }
  // A value; all its digits where fewer would put it on the other side of the target.
  function shown(value, target) {
    if (value === null || value === undefined) return "–";
    if (target !== null && (+value.toPrecision(6) <= target) !== (value <= target)) return String(value);
    const size = Math.abs(value);
    if (value !== 0 && (size < 1e-6 || size >= 1e15)) return value.toExponential(4);
    return size < 0.001 ? small.format(value) : precise.format(value);
  }

  function range(figure) {
    return (_, low, high) => {
      if (figure.y_range) [low, high] = figure.y_range;
      if (figure.shade) [low, high] = [Math.min(low, ...figure.shade.low), Math.max(high, ...figure.shade.high)];
      if (figure.target !== null) [low, high] = [Math.min(low, figure.target), Math.max(high, figure.target)];
      if (figure.from_zero) return [0, high > 0 ? high * 1.1 : 1];
      const room = (high - low || Math.abs(high) || 1) * 0.08;
      return [low - room, high + room];
    };
  }

  function xRange(figure) {
    return (_, low, high) => {
      if (figure.x_range && !figure.zoomed) [low, high] = figure.x_range;
      if (figure.band !== null && !figure.zoomed) high = Math.max(high, figure.band.high);
      return low === high ? [low - 1, high + 1] : [low, high + (high - low) * 0.01];
    };
  }

  // What other runs lie between, and the lines of the other panels.
  function drawOthers(u, figure, ratio) {
    const { ctx } = u;
    const at = (x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
    if (figure.shade) {
      const { x, low, high } = figure.shade;
      ctx.beginPath();
      x.forEach((value, place) => ctx.lineTo(...at(value, high[place])));
      for (let place = x.length - 1; place >= 0; place--) ctx.lineTo(...at(x[place], low[place]));
      ctx.closePath();
      ctx.fillStyle = css("--band");
      ctx.fill();
    }
    ctx.strokeStyle = css("--band");
    ctx.lineWidth = ratio;
    for (const other of families.get(figure.family) || []) {
      if (other === figure) continue;
      const { x, y } = other.lines[0];
      ctx.beginPath();
      x.forEach((value, place) => { if (y[place] !== null) ctx.lineTo(...at(value, y[place])); });
      ctx.stroke();
    }
  }

  function drawBelow(figure) {
    return (u) => {
      const { ctx, bbox } = u;
      const ratio = devicePixelRatio || 1;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.font = `${12 * ratio}px system-ui, sans-serif`;
      if (figure.band !== null) {
        const left = u.valToPos(figure.band.low, "x", true);
        const right = u.valToPos(figure.band.high, "x", true);
        ctx.fillStyle = css("--band");
        ctx.fillRect(left, bbox.top, Math.max(right - left, 2 * ratio), bbox.height);
        ctx.fillStyle = css("--quiet");
        if (!figure.family) {
          ctx.textAlign = "right";
          ctx.textBaseline = "top";
          ctx.fillText(figure.band.label, left - 6 * ratio, bbox.top + 4 * ratio);
        }
      }
      drawOthers(u, figure, ratio);
      if (figure.target !== null) {
        const y = u.valToPos(figure.target, "y", true);
        ctx.strokeStyle = ctx.fillStyle = css("--target");
        ctx.lineWidth = ratio;
        ctx.setLineDash([5 * ratio, 4 * ratio]);
        ctx.beginPath();
        ctx.moveTo(bbox.left, y);
        ctx.lineTo(bbox.left + bbox.width, y);
        ctx.stroke();
        ctx.textAlign = "left";
        ctx.textBaseline = "bottom";
        if (!figure.family) ctx.fillText(`target ${figure.target}`, bbox.left + 6 * ratio, y - 3 * ratio);
      }
      const kinds = { evaluation: ["--part-evaluation", 7], checkpoint: ["--part-checkpoint", 13], restart: ["--part-lost", 1e5] };
      ctx.setLineDash([]);
      const longestFirst = [...figure.marks].sort((a, b) => kinds[b.kind][1] - kinds[a.kind][1]); // a tick hides none
      for (const mark of longestFirst) {
        const [colour, length] = kinds[mark.kind];
        const x = u.valToPos(mark.x, "x", true);
        ctx.strokeStyle = css(colour);
        ctx.lineWidth = 1.5 * ratio;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top + bbox.height);
        ctx.lineTo(x, bbox.top + bbox.height - length * ratio);
        ctx.stroke();
      }
      ctx.restore();
    };
  }

  // Away from the mouse the legend tells the last values.
  const away = (u) => u.cursor.left === undefined || u.cursor.left < 0;
  function tellLast(u) {
    if (away(u)) {
      u.setLegend({ idxs: u.data.map((values) => values.findLastIndex((value) => value != null)) }, false);
    }
  }

  const COLOURS = 6;
  const colourOf = (panel, line) => (panel ? 0 : runs[line.run][1] % COLOURS);

  // A stretch of the line itself before each name in the legend; a brief legend tells the name under the mouse and aloud.
  function drawMarkers(u, figure, brief) {
    u.root.querySelectorAll(".u-legend .u-marker").forEach((marker, place) => {
      const line = figure.lines[place - 1];
      if (!line) return marker.remove();
      const dash = (DASHES[runs[line.run][2]] || []).join(" ");
      const sample = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      sample.setAttribute("class", "sample");
      sample.innerHTML = `<line x1="0" x2="28" y1="5" y2="5" stroke-width="2" stroke="${u.series[place].stroke()}" stroke-dasharray="${dash}"/>`;
      if (brief) {
        const [name] = runs[line.run];
        marker.closest("tr").title = name;
        sample.setAttribute("role", "img");
        sample.setAttribute("aria-label", name);
      }
      marker.replaceWith(sample);
    });
  }

  const labelRoom = (_, values) => 14 + 6.6 * Math.max(3, ...(values || []).map((value) => value.length));

  function axis(label, side, size) {
    return {
      label: label || undefined, size, labelSize: label ? 20 : 0, labelGap: 2, side, stroke: css("--quiet"), font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif", grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false },
      values: ticks, space: side === 2 ? 60 : 34,
    };
  }

  // Of the canvas; the legend flows below it.
  const heightOf = (element) => Number(getComputedStyle(element).getPropertyValue("--canvas"));

  function draw(element) {
    const figure = byName.get(element.dataset.figure);
    const printing = document.documentElement.hasAttribute("data-print");
    const printed = PRINTED_WIDTH[figure.name] || PRINTED_WIDTH.other;
    const width = printing ? printed : element.clientWidth;
    const panel = figure.family !== "";
    const brief = figure.lines.length > 1 && charts.some((above) => above.lines > 1); // the first legend names the runs
    element.classList.toggle("brief", brief);
    const options = {
      width,
      height: heightOf(element),
      cursor: { sync: { key: figure.x_label }, points: { size: 7 }, y: false },
      legend: { show: !panel },
      scales: { x: { time: false, range: xRange(figure) }, y: { range: range(figure) } },
      axes: [axis(panel ? "" : figure.x_label, 2, 30), axis(panel ? "" : figure.y_label, 3, labelRoom)],
      series: [
        { label: figure.x_unit, value: (u, value) => (away(u) ? "last" : figure.x_unit === "tokens" ? whole.format(value) : value.toFixed(2)) },
        ...figure.lines.map((line) => ({
          label: runs[line.run][0], stroke: css(`--run-${colourOf(panel, line)}`), width: 1.6, value: (_, value) => shown(value, figure.target),
          points: { show: figure.dots && !panel, size: 6, fill: css("--page") }, dash: DASHES[runs[line.run][2]],
        })),
      ],
      hooks: { drawAxes: [drawBelow(figure)], ready: [tellLast, (u) => drawMarkers(u, figure, brief)], setCursor: [tellLast], setSelect: [() => { figure.zoomed = true; }] },
    };
    const chart = new uPlot(options, uPlot.join(figure.lines.map((line) => [line.x, line.y])), element);
    chart.over.addEventListener("dblclick", () => { figure.zoomed = false; });
    charts.push({ chart, element, width, lines: panel ? 0 : figure.lines.length });
  }

  function redraw() {
    for (const { chart } of charts) chart.destroy();
    charts = [];
    document.querySelectorAll("[data-figure]").forEach(draw);
  }

  const widths = new ResizeObserver(() => {
    if (document.documentElement.hasAttribute("data-print")) return;
    for (const entry of charts) {
      const width = entry.element.clientWidth;
      if (width > 0 && width !== entry.width) {
        entry.chart.setSize({ width, height: heightOf(entry.element) });
        entry.width = width;
      }
    }
  });

  let closed = [];
  addEventListener("beforeprint", () => {
    document.documentElement.setAttribute("data-print", "");
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((details) => { details.open = true; });
    redraw();
  });
  addEventListener("afterprint", () => {
    document.documentElement.removeAttribute("data-print");
    closed.forEach((details) => { details.open = false; });
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  redraw();
  document.querySelectorAll("[data-figure]").forEach((element) => widths.observe(element));
})();
