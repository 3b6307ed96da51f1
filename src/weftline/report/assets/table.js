/* weft.table(element, header, rows): a table whose columns sort. header = [{name, number?}], rows = arrays of
   text, or {text, sort} where text and order differ. Without header and rows it makes an existing table sortable. */
(function () {
  "use strict";
  const weft = window.weft;
  const textOf = (cell) => (cell !== null && typeof cell === "object" ? cell.text : String(cell ?? ""));

  weft.table = (element, header, rows) => {
    if (header) {
      const head = weft.make("tr", {}, ...header.map((h) => weft.make("th", { scope: "col", class: h.number ? "number" : null }, h.name)));
      const body = rows.map((row) => weft.make("tr", {}, ...row.map((cell, i) => {
        const sort = cell !== null && typeof cell === "object" ? cell.sort : null;
        return weft.make(i ? "td" : "th", { scope: i ? null : "row", class: header[i].number ? "number" : null, "data-sort": sort }, textOf(cell));
      })));
      element.replaceChildren(weft.make("table", {}, weft.make("thead", {}, head), weft.make("tbody", {}, ...body)));
    }
    const table = element.matches("table") ? element : element.querySelector("table");
    table.querySelectorAll("thead th").forEach((cell, column) => {
      if (!cell.textContent.trim()) return;
      const button = weft.make("button", { type: "button", class: "weft-sort" }, ...cell.childNodes);
      cell.replaceChildren(button);
      button.addEventListener("click", () => sort(table, cell, column));
    });
  };

  function sort(table, head, column) {
    const up = head.getAttribute("aria-sort") !== "ascending";
    table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = table.tBodies[0], key = (row) => {
      const cell = row.cells[column], given = cell.getAttribute("data-sort");
      return given === null || given === "" ? cell.textContent.trim().toLowerCase() : Number(given);
    };
    const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    const sorted = [...body.rows].map((row) => [key(row), row]).sort((a, b) => (up ? 1 : -1) * order(a[0], b[0]));
    body.append(...sorted.map(([, row]) => row));
  }
})();
