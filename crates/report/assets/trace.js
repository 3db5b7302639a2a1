"use strict";
// One trace: the log beside what the model was shown at a step, and what became of what its actions used.

(() => {
  const { by, element, foreign, plural, share, short, tokens } = report;
  const statuses = {
    v: { text: "in view", class: "" },
    s: { text: "in summary", class: "insummary" },
    r: { text: "recoverable", class: "recoverable" },
    l: { text: "lost", class: "lost" },
  };
  const states = {
    shown: "shown", rewritten: "rewritten", summarized: "summarized", forgotten: "forgotten", absent: "not shown", later: "not yet",
  };
  const reasons = {
    request: "somebody asked", tokens: "the request was too large", events: "the view had too many entries",
    policy: "the policy's own rule", overflow: "the provider refused the request as too long",
  };

  // The requests of a row, rebuilt from their differences; every 32nd is kept.
  const requests = (row) => {
    const kept = new Map();
    const next = (now, [nKept, entries, nSame, more]) =>
      now.slice(0, nKept).concat(entries, nSame ? now.slice(now.length - nSame) : [], more);
    return (step) => {
      let from = Math.floor(step / 32) * 32;
      while (from > 0 && !kept.has(from)) from -= 32;
      let now = kept.get(from) || (from === 0 ? next([], row.views[0]) : []);
      for (let at = from + 1; at <= step; at++) {
        now = next(now, row.views[at]);
        if (at % 32 === 0) kept.set(at, now);
      }
      return now;
    };
  };

  // By event: the steps at which it left the requests, and whether it came again.
  const departures = (row, eventOf) => {
    const left = new Map();
    let now = [];
    row.views.forEach(([nKept, entries, nSame, more], step) => {
      const end = now.length - nSame;
      const fresh = new Set([...entries, ...more].map(eventOf));
      for (const entry of now.slice(nKept, Math.max(nKept, end))) {
        const event = eventOf(entry);
        if (event !== null && !fresh.has(event)) left.set(event, [...(left.get(event) || []), step]);
      }
      now = now.slice(0, nKept).concat(entries, nSame ? now.slice(end) : [], more);
    });
    return left;
  };

  const excerpt = ([, , , head, leftOut, tail]) => [
    head,
    leftOut ? element("span", { class: "cut", text: `\n[… ${leftOut.toLocaleString("en")} characters left out …]\n` }) : "",
    tail,
  ];

  const firstLine = (text) => short(text.trimStart().split("\n", 1)[0] || "", 160);

  class Detail {
    constructor(data, index, block, chosen) {
      this.data = data;
      this.index = index;
      this.trace = data.traces[index];
      this.block = block;
      this.hasTexts = block.events.length > 0;
      this.query = "";
      this.only = "all";
      this.step = 0;
      const windows = [...new Set(block.rows.map((row) => row.window))];
      this.window = windows.includes(chosen.window) ? chosen.window : windows[0];
      this.windows = windows;
      const rows = this.rowsOfWindow();
      const wanted = rows.find((row) => row.policy === chosen.policy && row.seed === (chosen.seed || 0));
      this.row = wanted || rows.find((row) => row.records.length && !data.controls.includes(row.policy)) || rows[0];
      this.nEvents = Math.max(block.events.length, ...block.starts, 0);
      this.build();
    }

    rowsOfWindow() {
      return this.block.rows.filter((row) => row.window === this.window);
    }

    name(row) {
      return this.data.policies[row.policy] + (row.seed ? ` (seed ${row.seed})` : "");
    }

    build() {
      const { data, trace } = this;
      const notes = [`${trace.format}, ${plural(trace.events, "event")}, ${plural(trace.steps || 0, "step")}`];
      if (trace.task) notes.push(`task ${trace.task}`);
      const rowSelect = element("select", { id: "detail-policy", on: { change: () => this.choose(+rowSelect.value) } });
      const windowSelect = element("select", { id: "detail-window", on: { change: () => this.chooseWindow(+windowSelect.value) } });
      windowSelect.append(...this.windows.map((window) => element("option", { value: String(window), text: data.windows[window] })));
      windowSelect.value = String(this.window);
      this.rowSelect = rowSelect;
      this.figure = element("figure", { class: "chart", id: "sizes" });
      const button = (text, label, act) => element("button", { type: "button", text, "aria-label": label, title: label, on: { click: act } });
      this.range = element("input", { type: "range", min: "1", value: "1", id: "step", on: { input: () => this.go(+this.range.value - 1) } });
      this.buttons = {
        first: button("⇤", "First step", () => this.go(0)),
        previous: button("←", "Previous step", () => this.go(this.step - 1)),
        next: button("→", "Next step", () => this.go(this.step + 1)),
        last: button("⇥", "Last step", () => this.go(this.nSteps() - 1)),
        before: button("◂ ● condensation", "Previous condensation", () => this.jump(-1)),
        after: button("condensation ● ▸", "Next condensation", () => this.jump(1)),
      };
      this.status = element("p", { class: "status", id: "step-status", "aria-live": "polite", "aria-atomic": "true" });
      this.reason = element("p", { class: "reason", id: "step-reason" });
      this.log = element("ol", { class: "list", id: "log", "aria-label": "Log", tabindex: "0" });
      this.view = element("ol", { class: "list", id: "view", "aria-label": "What the model was shown", tabindex: "0" });
      this.logCount = element("small");
      this.viewCount = element("small");
      this.search = element("input", { type: "search", id: "log-search", autocomplete: "off", spellcheck: "false" });
      this.search.addEventListener("input", () => this.find(this.search.value));
      this.search.addEventListener("keydown", (event) => {
        if (event.key === "Enter") {
          event.preventDefault();
          this.nextMatch(event.shiftKey ? -1 : 1);
        }
      });
      this.matches = element("span", { class: "note", id: "log-matches", role: "status" });
      const only = element("select", { id: "log-only", on: { change: () => { this.only = only.value; this.filter(); } } });
      const kinds = [["all", "all events"], ["gone", "forgotten or summarized"], ["rewritten", "rewritten"], ["shown", "shown as stored"], ["pinned", "pinned"]];
      only.append(...kinds.map(([value, text]) => element("option", { value, text })));
      this.usesOnly = element("select", { id: "uses-only", on: { change: () => this.drawUses() } });
      const uses = [["gone", "not in view"], ["l", "lost"], ["s", "in a summary"], ["r", "recoverable"], ["all", "all"]];
      this.usesOnly.append(...uses.map(([value, text]) => element("option", { value, text })));
      this.usesTable = element("div", { class: "scroll tall", id: "uses-table", role: "region", tabindex: "0", "aria-label": "What the actions used" });
      this.recordsTable = element("div", { class: "scroll tall", id: "records-table", role: "region", tabindex: "0", "aria-label": "Condensations" });
      this.probesPlace = element("div");
      const label = (text, control) => element("label", {}, text, control);
      const { first, previous, next, last, before, after } = this.buttons;
      const body = by("detail-body");
      const heading = by("trace");
      heading.replaceChildren("Trace: ", foreign(trace.name));
      body.replaceChildren(
        element("p", { class: "note", text: notes.join("; ") }),
        trace.condensed ? element("p", { class: "note", text: "The agent itself ran with condensations here, so what “none” shows was never sent." }) : "",
        trace.missing !== null ? element("p", { class: "note lost", id: "missing" }, "The texts of this trace are not here: ", foreign(trace.missing), ". Events are numbers only.") : "",
        element("div", { class: "filters" }, label("Policy", rowSelect), label("Window", windowSelect)),
        this.figure,
        element("h3", { text: "The log, and what the model was shown" }),
        element(
          "div", { class: "sticky" },
          element("div", { class: "controls", role: "group", "aria-label": "Step" },
            element("div", { class: "stepper" }, first, previous, element("label", { class: "visually-hidden", for: "step", text: "Step" }), this.range, next, last),
            before, after),
          this.status, this.reason),
        element("div", { class: "filters", role: "search", "aria-label": "Search in the log" },
          label("Search the log", this.search), label("Show", only),
          element("div", { class: "controls" }, button("Previous match", "Previous match", () => this.nextMatch(-1)), button("Next match", "Next match", () => this.nextMatch(1)), this.matches)),
        element("div", { class: "columns" },
          element("div", { class: "column" }, element("h3", {}, element("span", { text: "Log" }), this.logCount), this.log),
          element("div", { class: "column" }, element("h3", {}, element("span", { text: "What the model was shown" }), this.viewCount), this.view)),
        element("h3", { text: "What the actions used, and where it was" }),
        element("p", { class: "note", text: "First uses of what the agent had read before. Lost: the request of the step that used it held it nowhere. A source leads to the log, a step to the moment it was needed." }),
        element("div", { class: "filters" }, label("Show", this.usesOnly)),
        this.usesTable,
        element("h3", { text: "When and why the policy acted" }),
        this.recordsTable,
        this.probesPlace,
      );
      // Charts measure their place, so it is shown before they are drawn.
      body.hidden = false;
      by("detail-empty").hidden = true;
      body.onkeydown = (event) => {
        const isText = event.target.matches("input, select, textarea");
        if (isText || event.altKey || event.ctrlKey || event.metaKey) return;
        const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (move) {
          event.preventDefault();
          this.go(this.step + move);
        }
      };
      this.buildLog();
      this.fillPolicies();
      this.show(this.firstStep());
    }

    nSteps() {
      return this.row.tokens.length;
    }

    // Where there is something to see: the first condensation, else the last step.
    firstStep() {
      return this.row.records.length ? this.row.records[0] : Math.max(0, this.nSteps() - 1);
    }

    fillPolicies() {
      this.rowSelect.replaceChildren(...this.rowsOfWindow().map((row) => {
        const acted = row.records.length ? plural(row.records.length, "condensation") : "never acted";
        return element("option", { value: String(this.block.rows.indexOf(row)), text: `${this.name(row)} – ${acted}` });
      }));
      this.rowSelect.value = String(this.block.rows.indexOf(this.row));
    }

    chooseWindow(window) {
      const { policy, seed } = this.row;
      this.window = window;
      this.row = this.rowsOfWindow().find((row) => row.policy === policy && row.seed === seed) || this.rowsOfWindow()[0];
      this.fillPolicies();
      this.show(Math.min(this.step, this.nSteps() - 1));
    }

    choose(number) {
      this.row = this.block.rows[number];
      this.show(Math.min(this.step, this.nSteps() - 1));
    }

    // Draws all that depends on the row.
    show(step) {
      const { row } = this;
      this.eventOf = (entry) => (entry >= 0 ? entry : this.block.texts[-1 - entry] ? this.block.texts[-1 - entry][0] : null);
      this.request = row.views ? requests(row) : null;
      this.left = row.views ? departures(row, this.eventOf) : new Map();
      this.facts = new Map(row.facts.map((fact) => [fact[0], fact]));
      this.refused = new Map();
      for (const [at, why] of row.refused) this.refused.set(at, [...(this.refused.get(at) || []), why]);
      this.range.max = String(this.nSteps());
      this.entries = new Map();
      this.move = report.sizes(this.figure, this.rowsOfWindow().map((other) => ({ name: this.name(other), tokens: other.tokens, records: other.records, isChosen: other === row })), {
        limit: this.data.limits[this.window],
        onStep: (at) => this.go(at),
      });
      this.drawUses();
      this.drawRecords();
      this.drawProbes();
      this.go(step);
    }

    // ---- The log.

    buildLog() {
      const n = this.nEvents;
      this.logItems = [];
      this.logStates = [];
      for (let number = 0; number < n; number++) {
        const event = this.block.events[number];
        const state = element("span", { class: "state" });
        const pin = element("span", { class: "pin", text: "pinned", hidden: true });
        const line = element("span", { class: "line" });
        if (event) {
          const [kind, tool, , head, , tail] = event;
          line.append(element("span", { class: "who" }, kind, tool ? " " : "", tool ? foreign(tool) : ""), foreign(firstLine(head || tail)));
        } else {
          line.append(element("span", { class: "note", text: "text not here" }));
        }
        const summary = element("summary", {}, element("span", { class: "number", text: String(number + 1) }), line, element("span", {}, pin, state));
        const details = element("details", {}, summary);
        details.addEventListener("toggle", () => {
          if (details.open && event && details.children.length === 1) {
            details.append(
              element("span", { class: "meta" }, "event ", foreign(event[2], { class: "mono" }), ""),
              element("div", { class: "body mono", dir: "auto" }, ...excerpt(event)));
          }
        });
        const item = element("li", { id: `event-${number + 1}` }, details);
        this.logItems.push({ item, details, summary, state, pin, event });
        this.logStates.push("");
      }
      this.log.replaceChildren(...this.logItems.map(({ item }) => item));
    }

    isPinned(number, start) {
      return this.block.pins.some(([event, at, until]) => event === number && at < start && (until === null || until >= start));
    }

    // By event: what the request of the step makes of it.
    statesAt(step, entries) {
      const start = this.block.starts.length ? this.block.starts[step] : this.nEvents;
      const stored = new Set();
      const rewritten = new Set();
      for (const entry of entries) {
        if (entry >= 0) stored.add(entry);
        else if (this.eventOf(entry) !== null) rewritten.add(this.eventOf(entry));
      }
      const hasRecords = this.row.records.some((record) => record <= step);
      return this.logItems.map(({ event }, number) => {
        if (number >= start) return "later";
        if (stored.has(number)) return "shown";
        if (rewritten.has(number)) return "rewritten";
        if (event && (event[0] === "pin" || event[0] === "unpin")) return "absent";
        const left = (this.left.get(number) || []).filter((at) => at <= step).at(-1);
        if (left === undefined) return hasRecords ? "forgotten" : "absent";
        const fact = this.facts.get(left);
        return fact && fact[4] ? "summarized" : "forgotten";
      });
    }

    drawLog(step, entries) {
      const start = this.block.starts.length ? this.block.starts[step] : this.nEvents;
      const now = this.statesAt(step, entries);
      const hasPins = this.block.pins.length > 0;
      now.forEach((state, number) => {
        const { item, state: mark, pin } = this.logItems[number];
        if (hasPins) pin.hidden = !this.isPinned(number, start);
        if (this.logStates[number] === state) return;
        this.logStates[number] = state;
        mark.textContent = states[state];
        mark.className = `state ${state === "summarized" ? "summary" : state}`;
        item.classList.toggle("later", state === "later");
      });
      const count = (state) => now.filter((it) => it === state).length;
      this.counts = { shown: count("shown"), rewritten: count("rewritten"), summarized: count("summarized"), forgotten: count("forgotten"), so_far: start };
      this.logCount.textContent = `${plural(start, "event")} before this step, ${this.nEvents - start} after it`;
      this.filter();
    }

    filter() {
      const query = this.query.toLowerCase();
      let n = 0;
      this.found = [];
      this.logItems.forEach(({ item, event, pin }, number) => {
        const fits = !query || (event && `${event[0]} ${event[1]} ${event[2]} ${event[3]} ${event[5]}`.toLowerCase().includes(query));
        const state = this.logStates[number];
        const wanted = this.only === "all" || (this.only === "gone" && (state === "forgotten" || state === "summarized")) || (this.only === "pinned" && !pin.hidden) || this.only === state;
        item.hidden = !(fits && wanted);
        if (!item.hidden) {
          n += 1;
          this.found.push(number);
        }
      });
      this.matches.textContent = query || this.only !== "all" ? (n ? plural(n, "event") : "No event fits") : "";
    }

    find(query) {
      this.query = query.trim();
      this.at = -1;
      this.filter();
    }

    nextMatch(way) {
      if (!this.found.length) return;
      this.at = ((this.at ?? -1) + way + this.found.length) % this.found.length;
      this.reveal(this.found[this.at], false);
    }

    // Shows an event of the log, opened.
    reveal(number, takesFocus = true) {
      const { item, details, summary } = this.logItems[number];
      if (item.hidden) {
        this.only = "all";
        by("log-only").value = "all";
        this.search.value = "";
        this.find("");
      }
      if (this.target) this.target.classList.remove("target");
      this.target = item;
      item.classList.add("target");
      details.open = true;
      item.scrollIntoView({ block: "nearest" });
      this.log.scrollTop = item.offsetTop - this.log.offsetTop - 40;
      if (takesFocus) {
        summary.focus({ preventScroll: true });
        this.log.scrollIntoView({ block: "nearest" });
      }
    }

    // ---- The view.

    drawView(entries, before) {
      const known = new Set(before);
      const items = entries.map((entry) => {
        let item = this.entries.get(entry);
        if (!item) this.entries.set(entry, (item = this.entry(entry)));
        item.classList.toggle("fresh", !known.has(entry));
        return item;
      });
      this.view.replaceChildren(...items);
      const n = (test) => entries.filter(test).length;
      const summaries = n((entry) => entry < 0 && this.eventOf(entry) === null);
      this.viewCount.textContent = plural(entries.length, "entry", "entries");
      return { rewritten: n((entry) => entry < 0) - summaries, summaries, stored: n((entry) => entry >= 0) };
    }

    entry(entry) {
      const number = this.eventOf(entry);
      const event = number === null ? null : this.block.events[number];
      const text = entry < 0 ? this.block.texts[-1 - entry] : null;
      const line = element("span", { class: "line" });
      const who = event ? event[0] + (event[1] ? " " : "") : number === null ? "summary" : "event";
      line.append(element("span", { class: "who" }, who, event && event[1] ? foreign(event[1]) : ""));
      if (text) line.append(foreign(firstLine(text[1])));
      else if (event) line.append(foreign(firstLine(event[3] || event[5])));
      const state = entry >= 0 ? ["", ""] : number === null ? ["summary", "summary"] : ["rewritten", "rewritten"];
      const summary = element("summary", {}, element("span", { class: "number", text: number === null ? "" : String(number + 1) }), line, state[0] ? element("span", { class: `state ${state[1]}`, text: state[0] }) : element("span"));
      const details = element("details", {}, summary);
      details.addEventListener("toggle", () => {
        if (!details.open || details.children.length > 1) return;
        if (text) {
          const cut = text[2] ? element("span", { class: "cut", text: `\n[… ${text[2].toLocaleString("en")} more characters]` }) : "";
          details.append(element("div", { class: "body mono", dir: "auto" }, text[1], cut));
        } else if (event) {
          details.append(element("div", { class: "body mono", dir: "auto" }, ...excerpt(event)));
        }
        if (number !== null) {
          const link = element("button", { type: "button", class: "link", text: `event ${number + 1} in the log`, on: { click: () => this.reveal(number) } });
          details.append(element("span", { class: "meta" }, link));
        }
      });
      return element("li", {}, details);
    }

    // ---- Steps.

    jump(way) {
      const { records } = this.row;
      const next = way > 0 ? records.find((record) => record > this.step) : records.findLast((record) => record < this.step);
      if (next !== undefined) this.go(next);
    }

    go(step) {
      const n = this.nSteps();
      if (n === 0) return;
      step = Math.max(0, Math.min(n - 1, step));
      this.step = step;
      const { row } = this;
      this.range.value = String(step + 1);
      this.move(step);
      const { first, previous, next, last, before, after } = this.buttons;
      const isLast = step === n - 1;
      const disabled = [[first, step === 0], [previous, step === 0], [next, isLast], [last, isLast], [before, !row.records.some((it) => it < step)], [after, !row.records.some((it) => it > step)]];
      // What has the focus keeps it.
      for (const [button, isOff] of disabled) {
        if (isOff && document.activeElement === button) this.range.focus();
        button.disabled = isOff;
      }
      const parts = [`Step ${step + 1} of ${n}`, `${tokens(row.tokens[step])} tokens, ${share(row.tokens[step] ? row.cached[step] / row.tokens[step] : null)} cached`];
      if (this.request) {
        const entries = this.request(step);
        this.drawLog(step, entries);
        const shown = this.drawView(entries, step > 0 ? this.request(step - 1) : []);
        parts.push(`${shown.stored} as stored, ${shown.rewritten} rewritten, ${plural(shown.summaries, "summary", "summaries")}`);
        parts.push(`${this.counts.forgotten + this.counts.summarized} of ${this.counts.so_far} events gone`);
      } else {
        this.view.replaceChildren(element("li", {}, element("span", { class: "entry note", text: "An earlier version made this run and kept no views." })));
      }
      this.status.replaceChildren(element("strong", { text: parts[0] }), `: ${parts.slice(1).join("; ")}`);
      this.range.setAttribute("aria-valuetext", `step ${step + 1} of ${n}, ${tokens(row.tokens[step])} tokens`);
      this.reason.replaceChildren(...this.why(step));
    }

    // Why the policy acted before a step, or what came of trying.
    why(step) {
      const fact = this.facts.get(step);
      if (fact) return ["Condensed before this step. ", foreign(this.said(fact))];
      if (this.row.records.includes(step)) return ["Condensed before this step."];
      const refused = this.refused.get(step);
      if (refused) return ["Tried before this step, and left as it was: ", foreign(refused.join("; "))];
      const last = this.row.records.findLast((record) => record < step);
      return [last === undefined ? "The policy has not acted so far." : `The policy did not act before this step; last before step ${last + 1}.`];
    }

    reasonsOf([, given]) {
      return given.map((reason) => reasons[reason] || reason).join(", ");
    }

    said(fact) {
      const [, , forgotten, rewritten, summarized, before, after, fallbacks] = fact;
      const why = this.reasonsOf(fact);
      const done = [`${forgotten} forgotten`, `${rewritten} rewritten`, summarized ? "a summary written" : "no summary"];
      const size = before !== null && after !== null ? `; from ${tokens(before)} to ${tokens(after)} tokens` : "";
      const fell = fallbacks.length ? `; fallbacks: ${fallbacks.join(", ")}` : "";
      return `${why ? `Why: ${why}. ` : ""}What: ${done.join(", ")}${size}${fell}.`;
    }

    stepLink(step) {
      return element("button", { type: "button", class: "link", text: `step ${step + 1}`, on: { click: () => {
        this.go(step);
        this.range.focus();
        this.range.scrollIntoView({ block: "center" });
      } } });
    }

    sourceLink(number, id) {
      if (number === null) return id ? foreign(id) : "–";
      return element("button", { type: "button", class: "link", text: `event ${number + 1}`, on: { click: () => this.reveal(number) } });
    }

    drawUses() {
      const { row, block } = this;
      const wanted = this.usesOnly.value;
      const all = block.uses.map((use, index) => ({ use, status: row.uses[index] || "l" }));
      const rows = all.filter(({ status }) => wanted === "all" || status === wanted || (wanted === "gone" && status !== "v"));
      const order = "lrsv";
      this.usesTable.replaceChildren(report.table({
        id: "uses", caption: `What the actions used: ${rows.length} of ${all.length}`, rows,
        empty: wanted === "all" ? "The actions used nothing that they had read before." : "Nothing of this kind: all that the actions used was where this leaves it out.",
        columns: [
          { label: "what", wrap: true, value: ({ use }) => use[1], show: ({ use }) => foreign(use[1], { class: "mono" }) },
          { label: "where it was", value: ({ status }) => order.indexOf(status), show: ({ status }) => element("span", { class: statuses[status].class, text: statuses[status].text }) },
          { label: "read in", number: true, value: ({ use }) => use[2], show: ({ use }) => this.sourceLink(use[2], use[3]) },
          { label: "needed at", number: true, value: ({ use }) => use[0], show: ({ use }) => this.stepLink(use[0]) },
          { label: "far", about: "five steps back or more", value: ({ use }) => (use[4] ? 0 : 1), show: ({ use }) => (use[4] ? "far" : "") },
        ],
      }));
    }

    drawRecords() {
      const rows = this.row.records.map((step) => ({ step, fact: this.facts.get(step) || null }));
      const of = (index) => ({ fact }) => (fact ? fact[index] : null);
      const count = (label, index) => ({ label, number: true, value: of(index), show: (it) => (it.fact ? String(it.fact[index]) : "–") });
      const size = (label, index) => ({ label, number: true, value: of(index), show: (it) => tokens(it.fact ? it.fact[index] : null) });
      this.recordsTable.replaceChildren(report.table({
        id: "records", caption: "Condensations", rows, empty: "The policy never acted on this trace.",
        columns: [
          { label: "before", number: true, value: ({ step }) => step, show: ({ step }) => this.stepLink(step) },
          { label: "why", value: ({ fact }) => (fact ? this.reasonsOf(fact) : null), show: ({ fact }) => foreign(fact ? this.reasonsOf(fact) || "–" : "–") },
          count("forgotten", 2), count("rewritten", 3),
          { label: "summary", value: of(4), show: ({ fact }) => (fact && fact[4] ? "yes" : "no") },
          size("tokens before", 5), size("tokens after", 6),
        ],
      }));
    }

    drawProbes() {
      const rows = this.row.probes;
      if (!rows.length) return this.probesPlace.replaceChildren();
      const region = element("div", { class: "scroll tall", role: "region", tabindex: "0", "aria-label": "Probes" });
      region.append(report.table({
        id: "probes", caption: "Probes of this trace", rows,
        columns: [
          { label: "probe", value: (it) => it[0], show: (it) => foreign(it[0]) },
          { label: "kind", value: (it) => it[1], show: (it) => it[1] },
          { label: "asked at", number: true, value: (it) => it[2], show: (it) => (it[2] === null ? "–" : this.stepLink(it[2])) },
          { label: "where the answer was", value: (it) => it[3], show: (it) => it[3] },
          { label: "stale values", value: (it) => it[4], show: (it) => it[4] },
        ],
      }));
      this.probesPlace.replaceChildren(element("h3", { text: "Probes" }), region);
    }
  }

  const unpacked = new Map();
  let wanted = 0;
  // Opens a trace, with a policy and a window where they are given. Of several asked for at once the last one stays.
  report.open = async (data, index, chosen = {}) => {
    const turn = ++wanted;
    by("detail").setAttribute("aria-busy", "true");
    if (!unpacked.has(index)) unpacked.set(index, report.unpack(`trace-${index}`));
    const block = await unpacked.get(index);
    if (turn !== wanted) return;
    by("detail").removeAttribute("aria-busy");
    if (!block.rows.length) return;
    new Detail(data, index, block, chosen);
    by("trace").focus();
    by("detail").scrollIntoView({ block: "start" });
  };
})();
