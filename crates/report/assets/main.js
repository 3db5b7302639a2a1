"use strict";
// The page at work: filters, the comparison and its charts, the list of traces.

(() => {
  const { by, dollars, element, foreign, plural, share, tokens } = report;
  const data = JSON.parse(by("data").textContent);
  const bases = Object.keys(data.bases);
  const state = { policy: "", window: 0, basis: "all", trace: "means" };
  // Cells of a row begin after trace, window, policy and seed.
  const at = (label) => 4 + data.columns.findIndex((column) => column.label === label);
  const parts = 4 + data.columns.length;
  const show = { tokens, share, dollars, count: (n) => String(n) };

  const nameOf = (row) => data.policies[row[2]] + (row[3] ? ` (seed ${row[3]})` : "");

  const fits = (name) => {
    const wanted = state.policy.toLowerCase().split(/[\s,]+/).filter(Boolean);
    return !wanted.length || wanted.some((part) => name.toLowerCase().includes(part));
  };

  const rows = (anyWindow = false) => {
    const all = state.trace === "means" ? data.means : data.rows.filter((row) => row[0] === state.trace);
    return all.filter((row) => (anyWindow || state.window === "all" || row[1] === state.window) && fits(nameOf(row)));
  };

  const isMeans = () => state.trace === "means";

  const columns = () => {
    const all = [
      { label: "policy", about: "the condensation policy", value: nameOf, show: (row) => policyCell(row) },
      state.window === "all" ? { label: "window", about: "tokens of the context window", number: true, value: (row) => row[1], show: (row) => data.windows[row[1]] } : null,
    ];
    data.columns.forEach((column, index) => {
      if (column.basis && state.basis !== "all" && column.basis !== state.basis) return;
      if (column.basis && !bases.length) return;
      const cell = 4 + index;
      if (column.unit === "fired") {
        all.push({
          label: isMeans() ? column.mean : column.label, about: isMeans() ? "traces on which the policy ever acted" : column.about, number: true,
          value: (row) => (isMeans() ? row[cell][0] : row[cell]),
          show: (row) => (isMeans() ? `${row[cell][0]} of ${row[cell][1]}` : row[cell] ? String(row[cell]) : "–"),
        });
      } else {
        all.push({ label: column.label, about: column.about, number: true, value: (row) => row[cell], show: (row) => show[column.unit](row[cell]) });
      }
    });
    return all.filter(Boolean);
  };

  const policyCell = (row) => {
    if (isMeans()) return foreign(nameOf(row));
    return element("button", { type: "button", class: "link", title: "Open the trace under this policy", on: { click: () => open(row[0], { policy: row[2], window: row[1], seed: row[3] }) } }, foreign(nameOf(row)));
  };

  const drawComparison = () => {
    const shown = rows();
    by("comparison-table").replaceChildren(report.table({ id: "comparison", caption: "Comparison of policies", columns: columns(), rows: shown, empty: "No policy fits the filter." }));
    const what = isMeans() ? `Means over ${plural(data.traces.length, "trace")}; the last four columns are totals.` : "One trace; a policy opens it.";
    by("comparison-note").textContent = `${plural(shown.length, "row")}. ${what}`;
  };

  // The prices that charts use where the table shows all.
  const basis = () => (state.basis === "all" ? "profile" : state.basis);

  const drawCharts = () => {
    // Charts are of one window: the first where the table shows all.
    const window = state.window === "all" ? 0 : state.window;
    const shown = rows(true).filter((row) => row[1] === window);
    const isPriced = bases.length > 0;
    const costAt = isPriced ? at(`$ ${basis()}`) : at("input");
    report.scatter(by("scatter"), shown.map((row) => ({
      name: nameOf(row), cost: row[costAt], kept: row[at("in view")], isControl: data.controls.includes(row[2]),
    })), { unit: isPriced ? "usd" : "tokens", costLabel: isPriced ? `$ ${basis()}` : "input" });
    const prices = data.bases[basis()];
    report.breakdown(by("breakdown"), shown.map((row) => {
      const [cached, fresh, output, read, wrote] = row.slice(parts);
      const cost = (n, price) => (isPriced ? (n * prices[price]) / 1e6 : n);
      return {
        name: nameOf(row), cached: cost(cached, "cache_read"), fresh: cost(fresh, "cache_write"), output: cost(output, "output"),
        summarizer: cost(read, "input") + cost(wrote, "output"),
      };
    }), { unit: isPriced ? "usd" : "tokens", basis: basis() });
  };

  const drawRetention = () => {
    const place = by("retention-body");
    place.replaceChildren();
    const cells = (all) => {
      const window = state.window === "all" ? null : state.window;
      const named = all.map(([window, policy, kind, round, n, view, summary, recoverable, lost, stale]) => ({ window, name: data.policies[policy], kind, round, n, view, summary, recoverable, lost, stale }));
      const mine = named.filter((cell) => fits(cell.name));
      const ofWindow = mine.filter((cell) => cell.window === window);
      return ofWindow.length ? ofWindow : mine.filter((cell) => cell.window === mine[0].window);
    };
    const draw = (all, options) => {
      const mine = all.length ? cells(all) : [];
      if (mine.length) report.retention(place, { ...options, cells: mine, about: `${options.about} Window ${data.windows[mine[0].window]}.` });
      return mine.length;
    };
    const n = draw(data.probes, { title: "Probes", roundLabel: "condensations before", hasStale: true, about: "Questions with known answers: the share that the request still answered, in view or in a summary, by how many condensations had gone before (10: ten or more)." })
      + draw(data.canaries, { title: "Planted values", roundLabel: "round", hasStale: true, about: "Values nobody can guess, planted early: the share that the request still held after each round of condensation." });
    if (data.probes.length || data.canaries.length) {
      if (!n) place.append(element("p", { class: "note", text: "No policy fits the filter." }));
      return;
    }
    place.append(
      element("p", { class: "note" }, "This run has no probes. ", element("code", { text: "condenser compare … --out RUN --probes FOLDER" }), " grades questions with known answers, and ", element("code", { text: "condenser report RUN --canaries LINES" }), " adds what ", element("code", { text: "condenser canaries … --format jsonl" }), " wrote."));
  };

  const drawTraces = () => {
    const wanted = by("filter-traces").value.trim().toLowerCase();
    const all = data.traces.map((trace, index) => ({ trace, index })).filter(({ trace }) => !wanted || `${trace.name} ${trace.format} ${trace.task || ""}`.toLowerCase().includes(wanted));
    const count = (label, key, about) => ({ label, about, number: true, value: ({ trace }) => trace[key], show: ({ trace }) => String(trace[key] ?? "–") });
    by("traces-table").classList.toggle("tall", all.length > 12);
    by("traces-table").replaceChildren(report.table({
      id: "traces", caption: "Traces", rows: all, mark: ({ index }) => opened === index, empty: "No trace fits.",
      columns: [
        { label: "trace", value: ({ trace }) => trace.name, show: ({ trace, index }) => element("button", { type: "button", class: "link", title: trace.name, on: { click: () => open(index, { window: state.window === "all" ? undefined : state.window }) } }, foreign(trace.name)) },
        { label: "format", value: ({ trace }) => trace.format, show: ({ trace }) => foreign(trace.format) },
        count("events", "events"), count("steps", "steps"), count("uses", "uses", "first uses of what the agent had read before"),
        { label: "texts", about: "whether the log's texts are in this page", value: ({ trace }) => (trace.missing === null ? 0 : 1), show: ({ trace }) => (trace.missing === null ? "here" : element("span", { class: "lost", title: trace.missing, text: "not here" })) },
      ],
    }));
  };

  let opened = null;
  const open = async (index, chosen) => {
    opened = index;
    drawTraces();
    await report.open(data, index, chosen);
  };

  const draw = () => {
    drawComparison();
    drawCharts();
    drawRetention();
  };

  const fill = (select, options, chosen) => {
    select.append(...options.map(([value, text]) => element("option", { value: String(value), text })));
    select.value = String(chosen);
  };

  // Only what was compared: canaries may name windows of their own.
  const windows = data.windows.map((text, index) => [index, text]).filter(([index]) => data.means.some((row) => row[1] === index));
  if (windows.length > 1) windows.push(["all", "all windows"]);
  fill(by("filter-window"), windows, state.window);
  fill(by("filter-basis"), [["all", bases.length ? "all bases" : "none known"], ...bases.map((basis) => [basis, basis])], "all");
  fill(by("filter-trace"), [["means", "all traces (means)"], ...data.traces.map((trace, index) => [index, trace.name])], "means");

  const number = (value) => (/^\d+$/.test(value) ? +value : value);
  by("filter-policy").addEventListener("input", (event) => { state.policy = event.target.value; draw(); });
  for (const key of ["window", "basis", "trace"]) {
    by(`filter-${key}`).addEventListener("change", (event) => { state[key] = number(event.target.value); draw(); });
  }
  by("filter-traces").addEventListener("input", drawTraces);
  document.querySelector("form.filters").addEventListener("submit", (event) => event.preventDefault());

  const themes = ["system", "light", "dark"];
  by("theme").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme || "system";
    const next = themes[(themes.indexOf(now) + 1) % themes.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    by("theme").textContent = `Theme: ${next}`;
  });

  drawComparison();
  drawTraces();
  drawCharts();
  drawRetention();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
  if (data.traces.length === 1) open(0, {});
})();
