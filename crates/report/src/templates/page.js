for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const cell = row.cells[column];
    const number = parseFloat(cell.dataset.value);
    return Number.isNaN(number) ? cell.textContent.trim() : number;
  };
  const compare = (a, b) => {
    const [left, right] = [typeof a === "number", typeof b === "number"];
    if (left !== right) return left ? -1 : 1;
    return left ? a - b : a.localeCompare(b);
  };
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].sort((a, b) => compare(key(a, column), key(b, column)));
    rows.forEach((row) => row.classList.remove("group"));
    body.append(...(up ? rows : rows.reverse()));
  }));
}
