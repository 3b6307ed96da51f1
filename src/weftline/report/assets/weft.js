/* The namespace that every component hangs on, and what they share: numbers for people, elements, a floating note.
   Nothing here reads the network, stores anything or turns text into markup. */
(function () {
  "use strict";
  const weft = (window.weft = window.weft || {});
  const SVG = "http://www.w3.org/2000/svg";

  function scaled(value, steps, significant) {
    const size = Math.abs(value);
    for (const [factor, unit] of steps) {
      if (size >= factor) {
        const number = value / factor;
        const digits = Math.abs(number) >= 9999 ? Math.round(number).toLocaleString("en") : String(+number.toPrecision(significant || 4));
        return digits + " " + unit;
      }
    }
    return String(+value.toPrecision(4)) + (steps.length ? " " + steps[steps.length - 1][1] : "");
  }

  /* 1278110000 -> "1.278 s" */
  weft.time = (ns) => scaled(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]]);
  weft.bytes = (n, significant) => scaled(n, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]], significant);
  weft.seconds = (s) => (s >= 100 ? Math.round(s) : +s.toPrecision(3)) + " s";
  weft.percent = (share) => (100 * share).toFixed(Math.abs(share) < 0.1 ? 2 : 1) + " %";
  weft.plain = (n) => (Number.isInteger(n) ? String(n) : String(+n.toPrecision(5)));

  /* weft.make("p", {class: "note"}, "text", child ...): text stays text. */
  weft.make = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
  weft.draw = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
  function fill(element, attributes, children) {
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined) element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  }

  /* Round marks of an axis: about `count` of them between low and high. */
  weft.ticks = (low, high, count) => {
    const rough = (high - low) / Math.max(1, count);
    if (!(rough > 0)) return [low];
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9 && found.length < 100; k++) found.push(k * step);
    return found;
  };

  /* One note for the whole page that follows the pointer or a focused item; lines are plain text, the first is bold. */
  let note = null;
  weft.note = (lines, x, y) => {
    if (!note) {
      note = weft.make("div", { class: "weft-note", role: "status", hidden: "" });
      document.body.append(note);
    }
    note.hidden = !lines;
    if (!lines) return;
    note.replaceChildren(...lines.map((line, i) => weft.make(i ? "div" : "strong", {}, line)));
    const box = note.getBoundingClientRect(), room = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(x + 14, room - box.width - 8));
    const above = y + 18 + box.height > window.innerHeight;
    note.style.left = left + "px";
    note.style.top = (above ? Math.max(8, y - box.height - 12) : y + 18) + "px";
  };

  /* Calls `draw` now and whenever the element gets another width; for print at once. */
  weft.fit = (element, draw) => {
    let last = 0;
    const redraw = () => {
      const width = Math.floor(element.clientWidth);
      if (width > 0 && width !== last) draw((last = width));
    };
    if (element.weftFit) element.weftFit.disconnect();
    element.weftFit = new ResizeObserver(() => requestAnimationFrame(redraw));
    element.weftFit.observe(element);
    redraw();
  };
})();
