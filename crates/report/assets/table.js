"use strict";
// Tables that can be sorted by each of their columns.

(() => {
  const { element } = report;
  // By table: the column it is sorted by, and whether downwards. It outlives a table that is drawn anew.
  const orders = new Map();

  const compare = (a, b) => {
    const [noA, noB] = [a, b].map((value) => value === null || value === undefined);
    if (noA || noB) return noA - noB;
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  };

  // `columns`: {label, about, number, value(row), show(row)}. `show` gives a text or a node, `value` what is sorted by.
  // `mark(row)` says whether a row is the chosen one.
  report.table = ({ id, caption, columns, rows, mark = () => false, empty = "Nothing fits." }) => {
    const body = element("tbody");
    const heads = columns.map((column, index) => {
      const button = element("button", { type: "button", title: column.about, text: column.label });
      const classes = [column.number ? "number" : "", index === 0 ? "first" : ""].join(" ").trim();
      const head = element("th", { scope: "col", class: classes || null, "aria-sort": "none" }, button);
      button.addEventListener("click", () => {
        const now = orders.get(id);
        const isSame = now && now.label === column.label;
        orders.set(id, { label: column.label, down: isSame ? !now.down : Boolean(column.number) });
        fill();
      });
      return head;
    });
    const cells = new Map();
    const line = (row) => {
      if (cells.has(row)) return cells.get(row);
      const made = element("tr", { class: mark(row) ? "selected" : null });
      columns.forEach((column, index) => {
        const shown = column.show(row);
        const classes = [column.number ? "number" : "", index === 0 ? "first" : "", column.wrap ? "wrap" : ""];
        const attributes = { class: classes.join(" ").trim() || null };
        if (index === 0) attributes.scope = "row";
        const cell = element(index === 0 ? "th" : "td", attributes);
        cell.append(shown);
        if (index === 0 && typeof shown === "string") cell.title = shown;
        made.append(cell);
      });
      cells.set(row, made);
      return made;
    };
    const fill = () => {
      const order = orders.get(id);
      const index = order ? columns.findIndex((column) => column.label === order.label) : -1;
      heads.forEach((head, at) => {
        head.setAttribute("aria-sort", at !== index ? "none" : order.down ? "descending" : "ascending");
      });
      let sorted = rows;
      if (index >= 0) {
        const { value } = columns[index];
        const isNone = (row) => value(row) === null || value(row) === undefined;
        // What has no value stays at the end either way.
        sorted = [...rows].sort((a, b) => {
          const way = order.down && !isNone(a) && !isNone(b) ? -1 : 1;
          return way * compare(value(a), value(b));
        });
      }
      if (sorted.length) body.replaceChildren(...sorted.map(line));
      else body.replaceChildren(element("tr", {}, element("td", { colspan: columns.length, text: empty })));
    };
    fill();
    return element(
      "table",
      {},
      element("caption", { class: "visually-hidden", text: caption }),
      element("thead", {}, element("tr", {}, ...heads)),
      body,
    );
  };

  // A drawing, and the same as a table that is made when somebody opens it.
  report.figure = (figure, { title, about, legend = [], drawing, table }) => {
    const words = element("figcaption", {}, title, about ? element("small", { text: about }) : null);
    const items = legend.map(({ color, shape, text }) => {
      const swatch = element("span", { class: `swatch ${shape || ""}`, "aria-hidden": "true" });
      swatch.style.color = color;
      return element("li", {}, swatch, report.foreign(text));
    });
    const details = element("details", {}, element("summary", { text: `${title}: as a table` }));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) {
        const region = element("div", { class: "scroll tall", role: "region", tabindex: "0", "aria-label": title });
        region.append(table());
        details.append(region);
      }
    });
    figure.replaceChildren(words, items.length ? element("ul", { class: "legend" }, ...items) : "", drawing, details);
  };
})();
