"use strict";
// The charts. Each has the same numbers as a table beside it.

(() => {
  const { color, dollars, element, foreign, plural, share, short, tokens } = report;
  const none = (text) => element("p", { class: "note", text });
  const text = { fontSize: "12px", fontFamily: "inherit" };

  // As wide as its place, so that letters keep their size on a narrow screen.
  const widthOf = (place, most) => Math.max(300, Math.min(most, place.clientWidth || most));

  const drawn = (options, label) => {
    const drawing = Plot.plot({ ...options, style: { ...text, background: "transparent", color: "currentColor" } });
    const svg = drawing.tagName === "svg" ? drawing : drawing.querySelector("svg");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", label);
    return drawing;
  };

  // The points that no other beats in both: cheaper first, each next one keeps more.
  report.front = (points) => {
    let best = -1;
    return points
      .filter((point) => point.cost !== null && point.kept !== null && !point.isControl)
      .sort((a, b) => a.cost - b.cost || b.kept - a.kept)
      .filter((point) => point.kept > best && ((best = point.kept), true));
  };

  // `points`: {name, cost, kept, isControl}.
  report.scatter = (figure, points, { unit, costLabel }) => {
    const all = points.filter((point) => point.cost !== null && point.kept !== null);
    const front = report.front(all);
    const isFront = new Set(front);
    const title = "Cost against what is kept";
    const cost = (value) => (unit === "usd" ? `$${dollars(value)}` : tokens(value));
    const columns = [
      { label: "policy", value: (it) => it.name, show: (it) => foreign(it.name) },
      { label: costLabel, number: true, value: (it) => it.cost, show: (it) => (unit === "usd" ? dollars(it.cost) : tokens(it.cost)) },
      { label: "in view", number: true, value: (it) => it.kept, show: (it) => share(it.kept) },
      { label: "on the front", value: (it) => (isFront.has(it) ? 0 : 1), show: (it) => (isFront.has(it) ? "yes" : it.isControl ? "control" : "no") },
    ];
    const table = () => report.table({ id: "scatter", caption: title, columns, rows: all });
    const about = `Each point is a policy; up and to the left is better. The front joins those that no other beats in both. Controls are no part of it.`;
    let drawing = none("No policy here has both a cost and evidence.");
    if (all.length) {
      const floor = Math.max(0, Math.floor((Math.min(...all.map((it) => it.kept)) - 0.05) * 10) / 10);
      const width = widthOf(figure, 620);
      // A name that would lie over another one is left to the tip and the table.
      const [least, most] = d3.extent(all, (it) => it.cost);
      const place = (it) => [((it.cost - least) / (most - least || 1)) * (width - 108), ((it.kept - floor) / (1 - floor || 1)) * 370];
      const named = [];
      for (const it of front) {
        const [x, y] = place(it);
        const isFree = named.every((other) => {
          const [otherX, otherY] = place(other);
          return Math.abs(otherY - y) > 15 || x - otherX > 7 * Math.min(26, other.name.length) || otherX - x > 7 * Math.min(26, it.name.length);
        });
        if (isFree) named.push(it);
      }
      const title = (it) => `${it.name}\n${cost(it.cost)}\n${share(it.kept)} in view`;
      drawing = drawn(
        {
          width, height: 440, marginTop: 34, marginRight: 60, marginLeft: 48, marginBottom: 44,
          x: { label: `${costLabel} →`, grid: true, nice: true, zero: false, tickFormat: (value) => (unit === "usd" ? d3.format("~r")(+value.toPrecision(6)) : tokens(value)), ticks: width / 100 },
          y: { label: "↑ in view", grid: true, domain: [floor, 1], tickFormat: (value) => `${Math.round(value * 100)}%` },
          marks: [
            Plot.line(front, { x: "cost", y: "kept", curve: "step-after", stroke: color("accent"), strokeOpacity: 0.6, strokeDasharray: "3,3" }),
            Plot.dot(all.filter((it) => it.isControl), { x: "cost", y: "kept", symbol: "square", r: 3.5, stroke: color("soft"), fill: color("paper") }),
            Plot.dot(all.filter((it) => !it.isControl && !isFront.has(it)), { x: "cost", y: "kept", r: 4, fill: color("strong-line"), stroke: color("paper") }),
            Plot.dot(front, { x: "cost", y: "kept", r: 4.5, fill: color("accent"), stroke: color("paper") }),
            Plot.text(named, { x: "cost", y: "kept", text: (it) => short(it.name, 26), dy: -11, textAnchor: "start", dx: -3, fill: color("ink"), stroke: color("paper"), strokeWidth: 4, clip: false }),
            Plot.tip(all, Plot.pointer({ x: "cost", y: "kept", title, fill: color("paper"), stroke: color("strong-line") })),
          ],
        },
        `${title}. On the front: ${front.map((it) => `${it.name}, ${cost(it.cost)}, ${share(it.kept)}`).join("; ")}`,
      );
    }
    const legend = [
      { color: color("accent"), shape: "dot", text: "on the front" },
      { color: color("strong-line"), shape: "dot", text: "beaten in both by another" },
      { color: color("soft"), text: "control" },
    ];
    report.figure(figure, { title, about, legend, drawing, table });
  };

  const parts = [
    { key: "cached", label: "cached input", color: "c2" },
    { key: "fresh", label: "other input", color: "c1" },
    { key: "output", label: "output", color: "c3" },
    { key: "summarizer", label: "summarizer", color: "c4" },
  ];

  // `rows`: {name, cached, fresh, output, summarizer}.
  report.breakdown = (figure, rows, { unit, basis }) => {
    const show = (value) => (unit === "usd" ? dollars(value) : tokens(value));
    const total = (row) => parts.reduce((sum, part) => sum + row[part.key], 0);
    const title = "What the cost is made of";
    const columns = [
      { label: "policy", value: (it) => it.name, show: (it) => foreign(it.name) },
      ...parts.map((part) => ({ label: part.label, number: true, value: (it) => it[part.key], show: (it) => show(it[part.key]) })),
      { label: "total", number: true, value: total, show: (it) => show(total(it)) },
    ];
    const table = () => report.table({ id: "breakdown", caption: title, columns, rows });
    const sorted = [...rows].sort((a, b) => total(a) - total(b));
    let drawing = none("Nothing fits the filters.");
    if (rows.length) {
      const stacked = sorted.flatMap((row) => parts.map((part) => ({ name: row.name, part: part.label, value: row[part.key] })));
      const width = widthOf(figure, 620);
      const letters = width < 480 ? 17 : 26;
      drawing = drawn(
        {
          width, height: Math.max(120, 44 + 19 * sorted.length), marginLeft: 8 + 6.5 * letters, marginRight: 52, marginTop: 8, marginBottom: 40,
          x: { label: unit === "usd" ? `US dollars, ${basis} →` : "tokens →", grid: true, tickFormat: unit === "usd" ? "~r" : tokens, ticks: width / 120 },
          y: { label: null, domain: sorted.map((row) => row.name), tickFormat: (name) => short(name, letters), tickSize: 0 },
          color: { domain: parts.map((part) => part.label), range: parts.map((part) => color(part.color)) },
          marks: [
            Plot.barX(stacked, Plot.stackX({ x: "value", y: "name", fill: "part", insetTop: 1.5, insetBottom: 1.5, order: parts.map((part) => part.label) })),
            Plot.text(sorted, { x: total, y: "name", text: (row) => show(total(row)), dx: 4, textAnchor: "start", fill: color("soft") }),
          ],
        },
        `${title}, by policy: ${sorted.slice(0, 6).map((row) => `${row.name} ${show(total(row))}`).join(", ")}`,
      );
    }
    const legend = parts.map((part) => ({ color: color(part.color), text: part.label }));
    const about = unit === "usd" ? `US dollars a trace, prices: ${basis}. The summarizer's calls are priced as requests of their own.` : "Tokens a trace; the profile has no prices.";
    report.figure(figure, { title, about, legend, drawing, table });
  };

  const lines = ["accent", "c3", "c4", "pinned", "forgotten", "rewritten", "c2", "soft"];

  // `cells`: {name, kind, round, n, view, summary, recoverable, lost, stale}; a drawing per kind.
  report.retention = (place, { title, about, cells, roundLabel, hasStale }) => {
    const names = [...new Set(cells.map((cell) => cell.name))];
    const shown = names.slice(0, lines.length);
    const kinds = [...new Set(cells.map((cell) => cell.kind))];
    const held = (cell) => (cell.view + cell.summary) / cell.n;
    const figure = element("figure", { class: "chart" });
    const width = widthOf(place, 1240) > 900 ? 600 : widthOf(place, 600);
    const grid = element("div", { class: "pair" });
    const [minRound, lastRound] = d3.extent(cells, (cell) => cell.round);
    const maxRound = Math.max(minRound + 1, lastRound);
    const ticks = d3.range(minRound, maxRound + 1, Math.ceil((maxRound - minRound + 1) / 11));
    for (const kind of kinds) {
      const of = cells.filter((cell) => cell.kind === kind && shown.includes(cell.name)).sort((a, b) => a.round - b.round);
      const last = (name) => of.filter((cell) => cell.name === name).at(-1);
      const said = shown.filter(last).map((name) => `${name} ${share(held(last(name)))}`).join(", ");
      const chart = drawn(
        {
          width, height: 200, marginTop: 26, marginLeft: 44, marginRight: 20, marginBottom: 36,
          x: { label: `${roundLabel} →`, domain: [minRound, maxRound], ticks, tickFormat: "d" },
          y: { label: `↑ ${kind.replaceAll("_", " ")}`, domain: [0, 1], grid: true, ticks: 3, tickFormat: (value) => `${Math.round(value * 100)}%` },
          color: { domain: shown, range: shown.map((_, index) => color(lines[index])) },
          marks: [
            Plot.line(of, { x: "round", y: held, z: "name", stroke: "name", strokeWidth: 1.75 }),
            Plot.dot(of, { x: "round", y: held, fill: "name", r: 2.5 }),
            Plot.tip(of, Plot.pointer({ x: "round", y: held, title: (it) => `${it.name}\n${roundLabel} ${it.round}: ${share(held(it))} of ${it.n}`, fill: color("paper"), stroke: color("strong-line") })),
          ],
        },
        `${kind.replaceAll("_", " ")}: share held by ${roundLabel}; last round: ${said}`,
      );
      grid.append(chart);
    }
    const count = (label, key) => ({ label, number: true, value: (it) => it[key], show: (it) => String(it[key]) });
    const columns = [
      { label: "policy", value: (it) => it.name, show: (it) => foreign(it.name) },
      { label: "kind", value: (it) => it.kind, show: (it) => it.kind },
      { label: roundLabel, number: true, value: (it) => it.round, show: (it) => String(it.round) },
      count("n", "n"),
      { label: "held", number: true, value: held, show: (it) => share(held(it)) },
      count("in view", "view"), count("in summary", "summary"), count("recoverable", "recoverable"), count("lost", "lost"),
      ...(hasStale ? [count("stale", "stale")] : []),
    ];
    const more = names.length > shown.length ? ` Drawn are the first ${shown.length} of ${names.length} policies; the filter of the comparison chooses others.` : "";
    report.figure(figure, {
      title, about: about + more,
      legend: shown.map((name, index) => ({ color: color(lines[index]), shape: "line", text: name })),
      drawing: grid,
      table: () => report.table({ id: `retention-${roundLabel}`, caption: title, columns, rows: cells }),
    });
    place.append(figure);
  };

  // Request sizes of a trace: `rows` {name, tokens, records, isChosen}. Gives a function that moves the step's line.
  report.sizes = (figure, rows, { limit, onStep }) => {
    const title = "Request size by step";
    const chosen = rows.find((row) => row.isChosen);
    const points = (row) => row.tokens.map((size, step) => ({ name: row.name, step: step + 1, size }));
    const others = rows.filter((row) => !row.isChosen);
    const marks = chosen ? chosen.records.map((step) => ({ step: step + 1, size: chosen.tokens[step] })) : [];
    const n = Math.max(1, ...rows.map((row) => row.tokens.length));
    const peak = Math.max(1, ...rows.flatMap((row) => row.tokens));
    const mine = chosen ? points(chosen) : [];
    const width = widthOf(figure, 1240);
    const drawing = drawn(
      {
        width, height: 260, marginLeft: 52, marginRight: 20, marginTop: 24, marginBottom: 38,
        x: { label: "step →", domain: [1, Math.max(2, n)], tickFormat: "d", ticks: Math.min(n, width / 80) },
        y: { label: "↑ tokens of the request", grid: true, domain: [0, Math.max(peak, limit && limit < peak * 1.6 ? limit : 0) * 1.05], tickFormat: tokens, ticks: 5 },
        marks: [
          limit && limit < peak * 1.6 ? Plot.ruleY([limit], { stroke: color("forgotten"), strokeDasharray: "4,3" }) : null,
          Plot.line(others.flatMap(points), { x: "step", y: "size", z: "name", stroke: color("strong-line"), strokeOpacity: 0.75, strokeWidth: 1 }),
          Plot.line(mine, { x: "step", y: "size", stroke: color("accent"), strokeWidth: 2 }),
          Plot.dot(marks, { x: "step", y: "size", fill: color("accent"), stroke: color("paper"), r: marks.length > 60 ? 2.2 : 4 }),
          Plot.tip(rows.flatMap(points), Plot.pointer({ x: "step", y: "size", title: (it) => `${it.name}\nstep ${it.step}: ${tokens(it.size)}`, fill: color("paper"), stroke: color("strong-line") })),
        ],
      },
      chosen ? `${title} under ${chosen.name}: ${plural(marks.length, "condensation")}, peak ${tokens(Math.max(...chosen.tokens))}` : title,
    );
    const svg = drawing.tagName === "svg" ? drawing : drawing.querySelector("svg");
    const x = drawing.scale("x");
    const now = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [key, value] of Object.entries({ y1: 24, y2: 222, stroke: "currentColor", "stroke-width": 1, "stroke-opacity": 0.6 })) now.setAttribute(key, value);
    svg.append(now);
    svg.addEventListener("click", (event) => {
      const box = svg.getBoundingClientRect();
      onStep(Math.round(x.invert(((event.clientX - box.left) / box.width) * width)) - 1);
    });
    const columns = [
      { label: "step", number: true, value: (it) => it.step, show: (it) => String(it.step) },
      ...[...(chosen ? [chosen] : []), ...others].slice(0, 12).map((row) => ({
        label: short(row.name, 40), number: true,
        value: (it) => row.tokens[it.step - 1],
        show: (it) => `${tokens(row.tokens[it.step - 1])}${row.records.includes(it.step - 1) ? " ●" : ""}`,
      })),
    ];
    report.figure(figure, {
      title,
      about: "The chosen policy, its condensations as dots, the other policies in grey. A click goes to the step.",
      legend: [
        ...(chosen ? [{ color: color("accent"), shape: "line", text: chosen.name }, { color: color("accent"), shape: "dot", text: "condensation" }] : []),
        { color: color("strong-line"), shape: "line", text: "other policies" },
        ...(limit && limit < peak * 1.6 ? [{ color: color("forgotten"), shape: "line", text: "window less reserve" }] : []),
      ],
      drawing,
      table: () => report.table({ id: "sizes", caption: `${title}; a dot marks a condensation`, columns, rows: d3.range(1, n + 1).map((step) => ({ step })) }),
    });
    return (step) => {
      now.setAttribute("x1", x.apply(step + 1));
      now.setAttribute("x2", x.apply(step + 1));
    };
  };
})();
