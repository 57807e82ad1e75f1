"use strict";
// Sorts a table by the column whose head is pressed, and shows only the rows that hold what is typed into its filter.
document.querySelectorAll("table[data-sortable]").forEach((table) => {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  // A number where the cell begins with one, else its text; a dash comes last in both directions.
  function value(row, column) {
    const cell = row.cells[column];
    if (!cell) return null;
    if (cell.dataset.order !== undefined) return Number(cell.dataset.order);
    const text = cell.firstChild ? cell.textContent.trim().split("\n")[0].trim() : "";
    const number = Number.parseFloat(text.replaceAll(",", ""));
    return text === "–" || text === "" ? null : Number.isNaN(number) ? text.toLowerCase() : number;
  }
  function sortBy(column, down) {
    const rows = [...body.rows].map((row) => [value(row, column), row]);
    const sign = down ? -1 : 1;
    rows.sort(([a], [b]) => (a === null) - (b === null) || (a === null ? 0 : sign * (a < b ? -1 : a > b ? 1 : 0)));
    rows.forEach(([, row]) => body.append(row));
    heads.forEach((head, place) => head.setAttribute("aria-sort", place !== column ? "none" : down ? "descending" : "ascending"));
  }
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sortBy(column, head.getAttribute("aria-sort") === "ascending"));
  });
  const filter = document.createElement("input");
  filter.type = "search";
  filter.placeholder = "Filter: part of a name, an accelerator, a verdict";
  filter.setAttribute("aria-label", "Show only the rows that hold this text");
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  table.parentElement.before(filter);
});
