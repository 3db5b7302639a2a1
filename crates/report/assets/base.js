"use strict";
// What the other scripts share. Nothing here or there makes markup of text: elements are made, and text is set.
const report = {};

(() => {
  // An element. Of the attributes `text` is its content, `on` its listeners; `null` and `false` leave one out.
  report.element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (key === "text") made.textContent = value;
      else if (key === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
      else if (key === "value" || key === "checked" || key === "disabled" || key === "hidden") made[key] = value;
      else made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  };

  // Foreign text: its direction does not reach beyond it.
  report.foreign = (text, attributes = {}) => report.element("bdi", { dir: "auto", text, ...attributes });

  report.by = (id) => document.getElementById(id);

  const trim = (number, digits) => number.toFixed(digits).replace(/\.?0+$/, "");
  const dash = "–";

  report.tokens = (n) => {
    if (n === null || n === undefined) return dash;
    if (n < 1e3) return String(Math.round(n));
    return n < 1e6 ? `${trim(n / 1e3, 1)}k` : `${trim(n / 1e6, 2)}M`;
  };
  // Whole percents; nearly all is not all.
  report.share = (share) => {
    if (share === null || share === undefined) return dash;
    if (share >= 0.995 && share < 1) return `${(Math.floor(share * 1000) / 10).toFixed(1)}%`;
    return `${(share * 100).toFixed(0)}%`;
  };
  report.dollars = (cost) => (cost === null || cost === undefined ? dash : cost.toFixed(3));
  report.plural = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

  report.short = (text, n) => {
    const chars = [...text];
    return chars.length > n ? `${chars.slice(0, n - 1).join("")}…` : text;
  };

  // What is packed in an element of the page.
  report.unpack = async (id) => {
    const packed = atob(report.by(id).textContent.trim());
    const bytes = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };

  report.color = (name) => `var(--${name})`;
})();
