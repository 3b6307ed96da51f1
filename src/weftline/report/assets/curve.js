/* weft.curve(element, rows): value and bound over search time.
   rows = [[seconds, value_ns or null, bound_ns or null], ...] by time. Called again with more rows it draws again. */
(function () {
  "use strict";
  const weft = window.weft;
  const LEFT = 64, RIGHT = 14, TOP = 14, BOTTOM = 30;

  weft.curve = (element, rows, options) => {
    const state = (element.weftCurve = element.weftCurve || {});
    state.rows = rows.filter((row) => row[1] !== null || row[2] !== null);
    state.format = (options && options.format) || weft.time;
    state.empty = (options && options.empty) || "nothing found yet";
    if (!state.ready) {
      state.ready = true;
      element.classList.add("weft-figure");
      element.addEventListener("pointermove", (event) => hover(element, state, event.clientX, event.clientY));
      element.addEventListener("pointerleave", () => leave(state));
      weft.fit(element, (width) => render(element, state, width));
    } else render(element, state, Math.floor(element.clientWidth));
  };

  function scale(rows) {
    const values = rows.map((r) => r[1]).filter((v) => v !== null);
    const bounds = rows.map((r) => r[2]).filter((b) => b !== null && b > 0);
    const known = values.concat(bounds);
    const low = Math.min(...known), high = Math.max(...known);
    const logarithmic = low > 0 && high / low > 30;
    if (logarithmic) return { low: low / 1.15, high: high * 1.15, logarithmic };
    const room = Math.max((high - low) * 0.12, high * 0.02, 1);
    return { low: Math.max(0, low - room), high: high + room, logarithmic };
  }

  /* A step line through (seconds, column) that holds its last number to the end. */
  function steps(rows, column, x, y, last) {
    let text = "", level = null;
    for (const row of rows) {
      if (row[column] === null || (column === 2 && row[column] <= 0)) continue;
      if (level === null) text += `M${x(row[0])} ${y(row[column])}`;
      else text += `H${x(row[0])}V${y(row[column])}`;
      level = row[column];
    }
    return level === null ? "" : text + `H${x(last)}`;
  }

  function band(rows, x, y, last) {
    let value = null, bound = null;
    const up = [], down = [];
    for (const row of rows) {
      const before = [value, bound];
      value = row[1] ?? value;
      bound = row[2] > 0 ? row[2] : bound;
      if (value === null || bound === null) continue;
      if (before[0] !== null && before[1] !== null) up.push([row[0], before[0]]), down.push([row[0], before[1]]);
      up.push([row[0], value]);
      down.push([row[0], bound]);
    }
    if (!up.length) return "";
    up.push([last, value]);
    down.push([last, bound]);
    return "M" + up.concat(down.reverse()).map(([s, v]) => `${x(s)} ${y(v)}`).join("L") + "Z";
  }

  function render(element, state, width) {
    const rows = state.rows, height = width < 480 ? 200 : 240;
    const svg = weft.draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told(state) });
    element.replaceChildren(svg);
    if (!rows.length) {
      svg.append(weft.draw("text", { x: width / 2, y: height / 2, class: "weft-quiet", "text-anchor": "middle" }, state.empty));
      state.x = null;
      return;
    }
    const { low, high, logarithmic } = scale(rows);
    const last = Math.max(rows[rows.length - 1][0], 1e-3);
    const map = logarithmic ? Math.log : (v) => v;
    const x = (s) => +(LEFT + (s / last) * (width - LEFT - RIGHT)).toFixed(1);
    const y = (v) => +(TOP + ((map(high) - map(v)) / (map(high) - map(low))) * (height - TOP - BOTTOM)).toFixed(1);
    const marks = logarithmic ? decades(low, high) : weft.ticks(low, high, 4);
    for (const mark of marks) {
      svg.append(weft.draw("line", { x1: LEFT, x2: width - RIGHT, y1: y(mark), y2: y(mark), class: "weft-rule" }));
      svg.append(weft.draw("text", { x: LEFT - 8, y: y(mark) + 4, class: "weft-tick", "text-anchor": "end" }, state.format(mark)));
    }
    for (const mark of weft.ticks(0, last, width < 480 ? 3 : 6)) {
      svg.append(weft.draw("text", { x: x(mark), y: height - 10, class: "weft-tick", "text-anchor": mark ? "middle" : "start" }, weft.seconds(mark)));
    }
    svg.append(weft.draw("path", { d: band(rows, x, y, last), class: "weft-gap" }));
    svg.append(weft.draw("path", { d: steps(rows, 2, x, y, last), class: "weft-bound-line" }));
    svg.append(weft.draw("path", { d: steps(rows, 1, x, y, last), class: "weft-value-line" }));
    state.cursor = weft.draw("line", { x1: 0, x2: 0, y1: TOP, y2: height - BOTTOM, class: "weft-cursor", visibility: "hidden" });
    svg.append(state.cursor);
    state.x = (pixel) => ((pixel - LEFT) / (width - LEFT - RIGHT)) * last;
    state.last = last;
  }

  function decades(low, high) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const digit of [1, 3]) if (digit * 10 ** power >= low && digit * 10 ** power <= high) found.push(digit * 10 ** power);
    }
    return found.length > 7 ? found.filter((v) => Number.isInteger(Math.log10(v))) : found;
  }

  /* What was known at a second. */
  function known(rows, second) {
    let value = null, bound = null;
    for (const row of rows) {
      if (row[0] > second) break;
      value = row[1] ?? value;
      bound = row[2] ?? bound;
    }
    return [value, bound];
  }

  function told(state) {
    if (!state.rows.length) return `Value and bound over search time: ${state.empty}`;
    const last = state.rows[state.rows.length - 1][0], [value, bound] = known(state.rows, Infinity);
    const text = (v) => (v === null ? "none" : state.format(v));
    return `Value and bound over search time: after ${weft.seconds(last)} the value is ${text(value)}, the bound ${text(bound)}`;
  }

  function hover(element, state, clientX, clientY) {
    if (!state.x) return;
    const second = state.x(clientX - element.getBoundingClientRect().left);
    if (second < 0 || second > state.last * 1.02) return leave(state);
    const [value, bound] = known(state.rows, second);
    const lines = [`after ${weft.seconds(Math.max(0, second))}`];
    lines.push(value === null ? "no plan yet" : `value ${state.format(value)}`);
    if (bound !== null) lines.push(`bound ${state.format(bound)}`);
    if (value && bound !== null) lines.push(`gap ${weft.percent((value - bound) / value)}`);
    weft.note(lines, clientX, clientY);
    const at = clientX - element.getBoundingClientRect().left;
    state.cursor.setAttribute("x1", at);
    state.cursor.setAttribute("x2", at);
    state.cursor.setAttribute("visibility", "visible");
  }

  function leave(state) {
    weft.note(null);
    if (state.cursor) state.cursor.setAttribute("visibility", "hidden");
  }
})();
