// The report in a real browser. `cargo xtask browser` runs this with everything it needs.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, unlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const { CONDENSER, CONDENSER_ROOT, CONDENSER_TRACES } = process.env;
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const place = mkdtempSync(join(tmpdir(), "condenser-report-"));
const at = (...names) => join(place, ...names);
const few = "none,recent-events,observation-masking,llm-summarizing";

const lines = (path) => readFileSync(path, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));

let browser;
let table;

const condenser = (...args) => execFileSync(CONDENSER, args, { cwd: CONDENSER_ROOT, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 });
const report = (run, html, ...more) => spawnSync(CONDENSER, ["report", run, "--html", html, ...more], { cwd: CONDENSER_ROOT, encoding: "utf8" });

before(async () => {
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: flags });
  table = condenser("compare", "fixtures/traces", "--policy", "all", "--window", "8k,32k", "--probes", "fixtures/probes", "--out", at("run"), "--format", "markdown");
  condenser("canaries", "fixtures/traces/tally-csv.pi.jsonl", "--window", "20%", "--seeds", "1", "--format", "jsonl", "-o", at("canaries.jsonl"));
  const made = report(at("run"), at("fixtures.html"), "--canaries", at("canaries.jsonl"));
  assert.equal(made.status, 0, made.stderr);
});

after(async () => {
  await browser?.close();
  rmSync(place, { recursive: true, force: true });
});

// Opens a page, lets `act` use it, and holds that nothing went wrong and nothing was asked for but the file itself.
const visit = async (file, act, { width = 1280, height = 900, colorScheme = "light" } = {}) => {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme });
  const page = await context.newPage();
  const odd = [];
  const own = pathToFileURL(file).href;
  page.on("console", (message) => odd.push(`console ${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => odd.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => { odd.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (request.url().split("#")[0] !== own && request.url() !== "data:,") odd.push(`request: ${request.url().slice(0, 200)}`); });
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  await page.goto(own);
  await page.waitForFunction(() => document.documentElement.dataset.ready);
  await act(page);
  assert.deepEqual(await page.evaluate(() => window.violations), []);
  assert.deepEqual(odd, []);
  await context.close();
};

// A trace is unpacked after the click that asks for it.
const opened = (page) => page.waitForFunction(() => !document.querySelector("#detail[aria-busy]") && document.querySelector("#log li"));

const open = async (page, name, policy) => {
  await page.locator("#traces-table tbody button", { hasText: name }).first().click();
  await opened(page);
  if (policy) {
    const value = await page.locator("#detail-policy option").evaluateAll((options, policy) => options.find((it) => it.textContent.split(" – ")[0] === policy).value, policy);
    await page.selectOption("#detail-policy", value);
  }
};

// Texts are read with `textContent`: what is scrolled out of sight is not drawn, and has no `innerText`.
const cells = (page, id) => page.locator(`#${id} tbody tr`).evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));

// What is folded is filled when it opens, and the page hears of that after the click.
const unfold = async (page, summary) => {
  await summary.click();
  await page.waitForFunction(() => [...document.querySelectorAll("details[open]")].every((it) => it.children.length > 1));
};

const fitsWidth = async (page) => {
  const [body, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(body <= window, `the body is ${body} wide in ${window}`);
};

// `12.3k`, `1.25M`, `99.7%`, `3 of 6`, `0.249` as numbers; a dash is none.
const number = (text) => {
  if (text === "–") return null;
  const factor = { k: 1e3, M: 1e6 }[text.at(-1)] || 1;
  return parseFloat(text) * factor;
};

test("the page holds everything it needs, and fits", async () => {
  const html = readFileSync(at("fixtures.html"), "utf8");
  console.log(`fixtures: ${(html.length / 1e6).toFixed(2)} MB`);
  assert.ok(html.length < 3e6);
  const markup = html.replace(/<script[^>]*>[^]*?<\/script>/g, "").replace(/<style>[^]*?<\/style>/g, "");
  assert.doesNotMatch(markup, /(src|href|action)="(?!#|data:,)/);
  assert.doesNotMatch(html.match(/<style>([^]*?)<\/style>/)[1], /@import|url\(/);
  for (const [width, colorScheme] of [[1280, "light"], [1280, "dark"], [360, "light"]]) {
    await visit(at("fixtures.html"), async (page) => {
      await fitsWidth(page);
      assert.match(await page.locator("main").textContent(), /do not say[^]*would still have been solved/);
      await open(page, "kvlog");
      await fitsWidth(page);
    }, { width, colorScheme });
  }
});

test("the table says what the command's own says, cell by cell", async () => {
  const wanted = table.split("Mean of 6 traces, window 8k")[1].split("\n").filter((line) => line.startsWith("|"));
  const split = (line) => line.split("|").slice(1, -1).map((cell) => cell.trim());
  const end = wanted.findIndex((line, index) => index > 1 && split(line)[0] === "policy");
  const lines = (end < 0 ? wanted : wanted.slice(0, end)).map(split);
  await visit(at("fixtures.html"), async (page) => {
    await page.selectOption("#filter-window", { label: "8k" });
    assert.deepEqual(await page.locator("#comparison-table thead th").allTextContents(), lines[0]);
    assert.deepEqual(await cells(page, "comparison-table"), lines.slice(2));
  });
});

test("every column sorts, both ways, and says so", async () => {
  await visit(at("fixtures.html"), async (page) => {
    const heads = page.locator("#comparison-table thead th");
    const n = await heads.count();
    assert.ok(n > 15);
    for (let column = 0; column < n; column++) {
      for (const turn of [0, 1]) {
        await heads.nth(column).locator("button").click();
        const sorts = await heads.evaluateAll((all) => all.map((head) => head.getAttribute("aria-sort")));
        assert.equal(sorts.filter((sort) => sort !== "none").length, 1);
        const way = sorts[column] === "ascending" ? 1 : -1;
        assert.equal(way, (column === 0) === (turn === 0) ? 1 : -1);
        const all = (await cells(page, "comparison-table")).map((row) => row[column]);
        const values = column === 0 ? all : all.map(number).filter((value) => value !== null);
        const sorted = column === 0 ? [...all].sort((a, b) => way * a.localeCompare(b, "en", { numeric: true })) : [...values].sort((a, b) => way * (a - b));
        assert.deepEqual(values, sorted, `column ${column}`);
        if (column > 0) assert.ok(all.slice(values.length).every((cell) => cell === "–"), "what has no value stands last");
      }
    }
  });
});

test("filters choose policies, window, prices and trace, for table and charts", async () => {
  await visit(at("fixtures.html"), async (page) => {
    const names = async () => (await cells(page, "comparison-table")).map((row) => row[0]);
    const all = await names();
    await page.fill("#filter-policy", "masking, craft");
    const wanted = all.filter((name) => name.includes("masking") || name.includes("craft"));
    assert.deepEqual(await names(), wanted);
    await unfold(page, page.locator("#breakdown summary"));
    assert.deepEqual((await cells(page, "breakdown")).map((row) => row[0]), wanted);
    await page.fill("#filter-policy", "zzz-nothing");
    assert.deepEqual(await names(), ["No policy fits the filter."]);
    await page.fill("#filter-policy", "observation-masking");
    const peaks = [];
    for (const window of ["8k", "32k"]) {
      await page.selectOption("#filter-window", { label: window });
      peaks.push((await cells(page, "comparison-table"))[0].join());
    }
    assert.notEqual(peaks[0], peaks[1]);
    await page.selectOption("#filter-window", "all");
    assert.equal((await names()).length, 2);
    await page.selectOption("#filter-basis", "tiered");
    const heads = await page.locator("#comparison-table thead th").allTextContents();
    assert.deepEqual(heads.filter((head) => head.startsWith("$")), ["$ tiered"]);
    await page.selectOption("#filter-trace", { label: "fixtures/traces/next-run.traj" });
    assert.ok((await page.locator("#comparison-table thead th").allTextContents()).includes("records"));
    await page.locator("#comparison-table tbody button").first().click();
    await opened(page);
    assert.match(await page.locator("#trace").textContent(), /next-run/);
    assert.match(await page.locator("#detail-policy option:checked").textContent(), /^observation-masking/);
  });
});

test("the charts have the numbers beside them, and the front is one", async () => {
  await visit(at("fixtures.html"), async (page) => {
    await unfold(page, page.locator("#scatter summary"));
    const points = (await cells(page, "scatter")).map(([name, cost, kept, front]) => ({ name, cost: number(cost), kept: number(kept), front }));
    const policies = points.filter((it) => it.front !== "control");
    assert.ok(points.some((it) => it.front === "control") && points.some((it) => it.front === "yes"));
    for (const it of policies.filter((it) => it.front === "yes")) {
      assert.ok(!policies.some((other) => other.cost < it.cost && other.kept > it.kept), `${it.name} is beaten`);
    }
    for (const chart of await page.locator("svg[role=img]").all()) assert.ok((await chart.getAttribute("aria-label")).length > 20);
    for (const title of ["Probes", "Planted values"]) {
      const figure = page.locator("#retention-body figure", { hasText: title });
      await unfold(page, figure.locator("summary"));
      assert.ok((await figure.locator("tbody tr").count()) > 10, title);
    }
    for (const kind of ["recall", "constraint", "safety rule", "exact list"]) assert.ok((await page.locator(`#retention-body svg[aria-label^="${kind}"]`).count()) === 1, kind);
  });
});

test("a step shows the log beside what the model was shown, as the command shows it", async () => {
  const trace = "fixtures/traces/ledger-currencies.openhands.jsonl";
  await visit(at("fixtures.html"), async (page) => {
    await page.selectOption("#filter-window", { label: "8k" });
    for (const policy of ["llm-summarizing", "observation-masking"]) {
      await open(page, "ledger", policy);
      for (const step of [40, 97]) {
        const shown = JSON.parse(condenser("view", trace, "--policy", policy, "--window", "8k", "--step", String(step), "--format", "json"));
        await page.locator("#step").fill(String(step));
        const status = await page.locator("#step-status").textContent();
        assert.match(status, new RegExp(`^Step ${step} of 112: ${(shown.tokens / 1e3).toFixed(1).replace(/\.0$/, "")}k tokens`));
        assert.equal(await page.locator("#view li").count(), shown.view.length);
        assert.match(await page.locator("#view ~ *, .column h3 small").last().textContent(), new RegExp(`^${shown.view.length} entries`));
      }
    }
    // What a state says of the log holds in the view.
    const states = await page.locator("#log li .state").allTextContents();
    const count = (state) => states.filter((it) => it === state).length;
    assert.equal(count("shown") + count("rewritten"), await page.locator("#view li").count());
    assert.ok(count("rewritten") > 5 && count("not yet") > 5);
    await page.selectOption("#log-only", "rewritten");
    assert.equal(await page.locator("#log li:visible").count(), count("rewritten"));
    const rewritten = page.locator("#view li", { has: page.locator(".state.rewritten") }).first();
    await unfold(page, rewritten.locator("summary"));
    assert.match(await rewritten.locator(".body").textContent(), /\[event /);
  });
});

test("steps go by buttons, condensation by condensation, and say why", async () => {
  await visit(at("fixtures.html"), async (page) => {
    await page.selectOption("#filter-window", { label: "8k" });
    await open(page, "ledger", "llm-summarizing");
    const step = async () => +(await page.locator("#step").inputValue());
    await page.getByRole("button", { name: "First step" }).click();
    assert.equal(await step(), 1);
    assert.match(await page.locator("#step-reason").textContent(), /has not acted so far/);
    const records = (await cells(page, "records-table")).map((row) => +row[0].replace("step ", ""));
    for (const record of records.slice(0, 4)) {
      await page.getByRole("button", { name: "Next condensation" }).click();
      assert.equal(await step(), record);
      assert.match(await page.locator("#step-reason").textContent(), /Why: the request was too large\. What: \d+ forgotten, .*summary written; from [\d.k]+ to/);
    }
    assert.ok((await page.locator("#log .state.summary").count()) > 3);
    await page.getByRole("button", { name: "Previous condensation" }).click();
    assert.equal(await step(), records[2]);
    await page.getByRole("button", { name: "Last step" }).click();
    assert.equal(await step(), 112);
    assert.ok(await page.getByRole("button", { name: "Next step" }).isDisabled());
  });
});

test("what was lost leads to where it was and to where it was needed", async () => {
  await visit(at("fixtures.html"), async (page) => {
    await open(page, "kvlog", "forget-all");
    await page.selectOption("#uses-only", "l");
    const rows = await cells(page, "uses-table");
    assert.ok(rows.length > 5 && rows.every((row) => row[1] === "lost"));
    let seen = 0;
    for (let row = 0; row < 6; row++) {
      const line = page.locator("#uses-table tbody tr").nth(row);
      const [item, , source, needed] = rows[row];
      await line.getByRole("button", { name: source }).click();
      const event = page.locator(`#event-${source.replace("event ", "")}`);
      assert.ok(await event.evaluate((it) => it.contains(document.activeElement) && it.querySelector("details").open));
      await event.locator(".body").waitFor({ state: "attached" });
      const text = await event.textContent();
      if (text.includes(item)) seen += 1;
      else assert.match(text, /characters left out/);
      await line.getByRole("button", { name: needed }).click();
      assert.equal(await page.locator("#step").inputValue(), needed.replace("step ", ""));
      assert.equal(await event.locator(".state").textContent(), "forgotten");
    }
    assert.ok(seen > 0);
    await page.selectOption("#uses-only", "all");
    const [facts] = lines(at("run/traces.jsonl"));
    assert.equal((await cells(page, "uses-table")).length, facts.uses.length);
  });
});

test("a search finds events of the log, one after the other", async () => {
  await visit(at("fixtures.html"), async (page) => {
    await open(page, "tally");
    const all = await page.locator("#log li").count();
    await page.fill("#log-search", "csv");
    const found = await page.locator("#log li:visible").count();
    assert.ok(found > 0 && found < all);
    assert.match(await page.locator("#log-matches").textContent(), new RegExp(`^${found} events?$`));
    const targets = [];
    for (let press = 0; press < 2; press++) {
      await page.locator("#log-search").press("Enter");
      targets.push(await page.locator("#log li.target").getAttribute("id"));
    }
    assert.notEqual(targets[0], targets[1]);
    await page.locator("#log li.target .body").waitFor({ state: "attached" });
    assert.match((await page.locator("#log li.target").textContent()).toLowerCase(), /csv|left out/);
    await page.fill("#log-search", "zzz-nowhere");
    assert.equal(await page.locator("#log-matches").textContent(), "No event fits");
    await page.fill("#log-search", "");
    assert.equal(await page.locator("#log li:visible").count(), all);
  });
});

test("from the top to an event of the log by keyboard alone", async () => {
  await visit(at("fixtures.html"), async (page) => {
    const focus = () => page.evaluate(() => {
      const it = document.activeElement;
      return { id: it.id, text: it.textContent.slice(0, 80), tag: it.tagName, inside: ["comparison-table", "traces-table", "log", "view"].find((id) => document.getElementById(id)?.contains(it)) || "" };
    });
    const tabTo = async (test, most = 80) => {
      for (let press = 0; press < most; press++) {
        await page.keyboard.press("Tab");
        const now = await focus();
        if (test(now)) return now;
      }
      assert.fail("it cannot be reached");
    };
    await page.keyboard.press("Tab");
    assert.match((await focus()).text, /^Skip/);
    await page.keyboard.press("Enter");
    assert.equal((await focus()).id, "main");
    await tabTo((now) => now.id === "filter-policy");
    await page.keyboard.type("craft");
    assert.equal((await cells(page, "comparison-table")).length, 1);
    await tabTo((now) => now.inside === "comparison-table" && now.tag === "BUTTON");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("#comparison-table th").first().getAttribute("aria-sort"), "ascending");
    await tabTo((now) => now.inside === "traces-table" && now.tag === "BUTTON" && /kvlog/.test(now.text));
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.activeElement.id === "trace");
    await tabTo((now) => now.id === "step");
    const before = +(await page.locator("#step").inputValue());
    await page.keyboard.press("ArrowLeft");
    assert.equal(+(await page.locator("#step").inputValue()), before - 1);
    assert.match(await page.locator("#step-status").textContent(), new RegExp(`^Step ${before - 1} of`));
    await tabTo((now) => now.inside === "log" && now.tag === "SUMMARY");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#log details[open] .body");
    // Arrows move the step from here, too.
    await page.keyboard.press("ArrowRight");
    assert.equal(+(await page.locator("#step").inputValue()), before);
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.equal(outline, "solid", "the focus is seen");
  });
});

test("light and dark follow the system, and the button decides otherwise", async () => {
  const paper = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const colors = [];
  for (const colorScheme of ["light", "dark"]) {
    await visit(at("fixtures.html"), async (page) => {
      colors.push(await paper(page));
      const seen = [];
      for (let press = 0; press < 3; press++) {
        await page.locator("#theme").click();
        seen.push(`${await page.locator("#theme").textContent()} ${await paper(page)}`);
      }
      colors.push(seen);
    }, { colorScheme });
  }
  const [light, ofLight, dark, ofDark] = colors;
  assert.notEqual(light, dark);
  assert.deepEqual(ofLight, [`Theme: light ${light}`, `Theme: dark ${dark}`, `Theme: system ${light}`]);
  assert.deepEqual(ofDark, [`Theme: light ${light}`, `Theme: dark ${dark}`, `Theme: system ${dark}`]);
});

test("everything has a name, and headings and landmarks are in order", async () => {
  await visit(at("fixtures.html"), async (page) => {
    await open(page, "kvlog", "forget-all");
    const wrong = await page.evaluate(() => {
      const wrong = [];
      const nameOf = (it) => it.getAttribute("aria-label") || document.getElementById(it.getAttribute("aria-labelledby"))?.textContent || [...(it.labels || [])].map((label) => label.textContent).join("") || it.textContent || "";
      for (const it of document.querySelectorAll("input, select, button, summary, a, [role=region], [role=img], nav, ol")) {
        if (!nameOf(it).trim()) wrong.push(`no name: ${it.outerHTML.slice(0, 120)}`);
      }
      for (const it of document.querySelectorAll("input, select")) {
        if (!(it.labels || []).length && !it.getAttribute("aria-label")) wrong.push(`no label: ${it.outerHTML.slice(0, 120)}`);
      }
      const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((it) => +it.tagName[1]);
      if (levels.filter((level) => level === 1).length !== 1 || levels[0] !== 1) wrong.push("not one h1 first");
      levels.forEach((level, index) => { if (index && level > levels[index - 1] + 1) wrong.push(`heading ${index} skips a level`); });
      for (const landmark of ["header", "main", "nav", "footer"]) if (document.querySelectorAll(`body > ${landmark}, header > ${landmark}`).length !== 1) wrong.push(`landmark ${landmark}`);
      for (const it of document.querySelectorAll("table")) if (!it.querySelector("caption")?.textContent || !it.querySelector("th[scope=col]")) wrong.push("a table without caption or header");
      const ids = [...document.querySelectorAll("[id]")].map((it) => it.id).filter((id) => !id.startsWith("plot"));
      if (new Set(ids).size !== ids.length) wrong.push("an id twice");
      for (const it of document.querySelectorAll("[tabindex]")) if (it.tabIndex > 0) wrong.push("a tabindex above 0");
      if (document.documentElement.lang !== "en" || !document.title) wrong.push("no language or title");
      if (document.querySelector("#step-status").getAttribute("aria-live") !== "polite") wrong.push("the step is not announced");
      return wrong;
    });
    assert.deepEqual(wrong, []);
    // Contrast of what is small and grey, in both themes.
    for (const theme of ["light", "dark"]) {
      const ratios = await page.evaluate((theme) => {
        document.documentElement.dataset.theme = theme;
        const light = (color) => {
          const [r, g, b] = color.match(/[\d.]+/g).slice(0, 3).map((it) => it / 255).map((it) => (it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const paper = light(getComputedStyle(document.body).backgroundColor);
        return [...document.querySelectorAll(".note, .state, .lost, .reason, .link, h2, caption, dt, small")].map((it) => {
          const ink = light(getComputedStyle(it).color);
          return [(Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05), it.className || it.tagName];
        });
      }, theme);
      for (const [ratio, what] of ratios) assert.ok(ratio >= 4.5, `${theme}: ${what} has a contrast of ${ratio.toFixed(2)}`);
    }
  });
});

test("a trace made to attack is shown as text, and does nothing", async () => {
  const attack = "</script><script>window.hacked=1</script><img src=x onerror=\"window.hacked=2\"><svg onload=window.hacked=3><!--";
  const odd = "\u001b[31mred\u001b]8;;http://evil.example\u0007link\u0000\u202egnp.exe\u2066\u2028\r";
  const name = "a<img src=x onerror=window.hacked=4>&quot;'\u202e.json";
  const tool = "<b onclick=hacked=5>bash</b>\u001b[2J";
  const call = (id, args) => ({ role: "assistant", content: `${attack} ${odd}`, tool_calls: [{ id, type: "function", function: { name: tool, arguments: JSON.stringify(args) } }] });
  const messages = [
    { role: "system", content: `${attack}${odd}` },
    { role: "user", content: `Please ${attack}\u202e` },
    call("c1", { command: attack }),
    { role: "tool", tool_call_id: "c1", content: `path-0001/${attack}\n${odd}\nsecret_value_17 <script>hacked=6</script>` },
    call("c2", { command: "cat secret_value_17 <script>hacked=6</script>" }),
    { role: "tool", tool_call_id: "c2", content: `x</script>${"A<b>".repeat(2_500_000)}` },
    call("c3", { command: `${"long".repeat(200)} secret_value_17` }),
    { role: "tool", tool_call_id: "c3", content: odd.repeat(3000) },
    call("c4", { command: "javascript:hacked=7" }),
    { role: "tool", tool_call_id: "c4", content: "done" },
    { role: "assistant", content: `\u202e${attack}` },
  ];
  mkdirSync(at("hostile"));
  writeFileSync(at("hostile", name), JSON.stringify({ messages }));
  condenser("compare", at("hostile"), "--policy", "none,observation-masking,llm-summarizing,forget-all", "--window", "8k", "--out", at("hostile-run"));
  const made = report(at("hostile-run"), at("hostile.html"));
  assert.equal(made.status, 0, made.stderr);
  const html = readFileSync(at("hostile.html"), "utf8");
  console.log(`hostile: ${(html.length / 1e6).toFixed(2)} MB`);
  assert.ok(html.length < 3e6);
  assert.ok(![..."\u0000\u001b\u202e\u2066\u2028"].some((c) => html.includes(c)), "a control character got in");
  await visit(at("hostile.html"), async (page) => {
    await opened(page);
    for (const policy of await page.locator("#detail-policy option").evaluateAll((all) => all.map((it) => it.value))) {
      await page.selectOption("#detail-policy", policy);
      for (const step of ["1", "3", "5"]) await page.locator("#step").fill(step);
    }
    await page.selectOption("#uses-only", "all");
    for (const summary of await page.locator("#log summary, #view summary, figure summary").all()) await unfold(page, summary);
    const text = await page.locator("#detail-body").textContent();
    for (const shown of ["</script><script>window.hacked=1", "␛[31mred", "␀", "⟦U+202E⟧", "<b onclick=hacked=5>bash</b>␛[2J", "characters left out"]) assert.ok(text.includes(shown), shown);
    assert.match(await page.locator("#trace").textContent(), /a<img src=x onerror=window\.hacked=4>&quot;'⟦U\+202E⟧/);
    const found = await page.evaluate(() => ({
      hacked: window.hacked,
      elements: [...document.querySelectorAll("body img, body b, body iframe, body object, body a[href^='javascript'], [onerror], [onload], [onclick]")].length,
      scripts: document.scripts.length,
      svgs: document.querySelectorAll("svg").length,
      drawn: document.querySelectorAll("figure svg").length,
    }));
    assert.deepEqual(found, { hacked: undefined, elements: 0, scripts: 7 + 1 + 1, svgs: found.drawn, drawn: found.drawn });
    await fitsWidth(page);
  });
});

test("a trace that is gone or has changed is shown without its texts, and the page says so", async () => {
  mkdirSync(at("gone"));
  for (const name of ["tally-csv.pi.jsonl", "wrap-columns.chat.json"]) copyFileSync(join(CONDENSER_ROOT, "fixtures/traces", name), at("gone", name));
  condenser("compare", at("gone"), "--policy", "none,forget-all", "--window", "8k", "--out", at("gone-run"));
  const tally = readFileSync(at("gone", "tally-csv.pi.jsonl"), "utf8");
  writeFileSync(at("gone", "tally-csv.pi.jsonl"), tally.replace("tally", "tales"));
  unlinkSync(at("gone", "wrap-columns.chat.json"));
  const made = report(at("gone-run"), at("gone.html"));
  assert.equal(made.status, 3);
  assert.match(made.stderr, /it has changed since[^]*it is not there any more/);
  await visit(at("gone.html"), async (page) => {
    for (const [name, reason] of [["tally", "has changed"], ["wrap", "not there any more"]]) {
      await open(page, name, "forget-all");
      assert.match(await page.locator("#missing").textContent(), new RegExp(reason));
      assert.ok((await page.locator("#log li").count()) > 5);
      assert.ok((await page.locator("#view li").count()) > 0);
      assert.ok((await cells(page, "uses-table")).length > 0);
    }
    assert.match(await page.locator("#retention-body").textContent(), /This run has no probes/);
  });
  // The traces are found again where somebody says they are.
  const found = report(at("gone-run"), at("found.html"), join(CONDENSER_ROOT, "fixtures/traces"));
  assert.equal(found.status, 0, found.stderr);
  assert.doesNotMatch(readFileSync(at("found.html"), "utf8"), /not there any more/);
});

test("recorded traces of all formats are reported", { skip: CONDENSER_TRACES ? false : "there are no recorded traces here; CONDENSER_SHARED names them" }, async () => {
  condenser("compare", CONDENSER_TRACES, "--policy", few, "--window", "32k", "--out", at("shared-run"));
  const made = report(at("shared-run"), at("shared.html"));
  assert.equal(made.status, 0, made.stderr);
  console.log(`recorded traces: ${(statSync(at("shared.html")).size / 1e6).toFixed(1)} MB`);
  await visit(at("shared.html"), async (page) => {
    const n = await page.locator("#traces-table tbody tr").count();
    console.log(`recorded traces: ${n}, ready after ${await page.evaluate(() => document.documentElement.dataset.ready)} ms`);
    for (let trace = 0; trace < n; trace += Math.ceil(n / 12)) {
      await page.locator("#traces-table tbody tr button").nth(trace).click();
      await opened(page);
      assert.match(await page.locator("#step-status").textContent(), /^Step \d+ of/);
    }
  });
});

test("two hundred traces are there within two seconds", async () => {
  const isFile = (path) => statSync(path, { throwIfNoEntry: false })?.isFile() && statSync(path).size < 400_000;
  const known = CONDENSER_TRACES ? lines(at("shared-run", "rows.jsonl")).map((row) => row.trace).filter(isFile) : [];
  const traces = [...new Set(known), ...["tally-csv.pi.jsonl", "wrap-columns.chat.json", "kvlog-recovery.claude-code.jsonl"].map((name) => join(CONDENSER_ROOT, "fixtures/traces", name))];
  mkdirSync(at("many"));
  for (let copy = 0; copy < 200; copy++) {
    const source = traces[copy % traces.length];
    copyFileSync(source, at("many", `${String(copy).padStart(3, "0")}-${basename(source)}`));
  }
  condenser("compare", at("many"), "--policy", few, "--window", "8k,32k", "--out", at("many-run"));
  const made = report(at("many-run"), at("many.html"));
  assert.equal(made.status, 0, made.stderr);
  const took = [];
  for (let round = 0; round < 3; round++) {
    await visit(at("many.html"), async (page) => {
      took.push(+(await page.evaluate(() => document.documentElement.dataset.ready)));
      // Some files hold more than one trace.
      assert.ok((await cells(page, "traces-table")).length >= 200);
      await page.locator("#comparison-table thead button").first().click();
      await open(page, "007-");
      assert.ok((await page.locator("#log li").count()) > 0);
    });
  }
  const size = statSync(at("many.html")).size;
  console.log(`200 traces, copies of ${traces.length}, ${(size / 1e6).toFixed(1)} MB: ready after ${took.join(", ")} ms`);
  assert.ok(Math.min(...took) < 2000);
});
