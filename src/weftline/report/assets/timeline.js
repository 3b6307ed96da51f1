/* weft.timeline(element, data): who does what when. Zoom, pan, hover, keyboard; thousands of spans in one path per lane.
   data = {end, lanes: [{device, name, role, start (differences), length, item, peer?}], marks: [{name, from, to}],
           chain: [op], tensors, sizes, blocks, kinds}; options = {time, names, kindOf, devices}.
   Gives {view(from, to), onview(call), show(op)}. */
(function () {
  "use strict";
  const weft = window.weft;
  const TALL = { compute: 22, block: 26, link: 12, receive: 7, send: 7 };
  const TONES = ["forward", "backward", "weight", "other"];
  /* Kinds of blocks can be told apart without colours: forward is plain, backward striped, gradients of weights dotted. */
  const PATTERNS = {
    backward: { size: 6, turn: "rotate(45)", draw: () => weft.draw("rect", { width: 1.5, height: 6, class: "weft-stripe" }) },
    weight: { size: 5, turn: null, draw: () => weft.draw("circle", { cx: 2.5, cy: 2.5, r: 1, class: "weft-stripe" }) },
  };
  function patterns(svg) {
    const found = weft.draw("defs", {});
    for (const [name, kind] of Object.entries(PATTERNS)) {
      const pattern = weft.draw("pattern", { id: `weft-${name}-pattern`, width: kind.size, height: kind.size, patternUnits: "userSpaceOnUse", patternTransform: kind.turn });
      pattern.append(kind.draw());
      found.append(pattern);
    }
    svg.append(found);
  }
  const TOP = 22, BOTTOM = 24, GROUP = 10;

  /* Differences -> times. */
  function unpack(lane) {
    const n = lane.start.length, from = new Float64Array(n), to = new Float64Array(n);
    for (let i = 0, at = 0; i < n; i++) {
      at += lane.start[i];
      from[i] = at;
      to[i] = at + lane.length[i];
    }
    return { ...lane, from, to, size: n };
  }

  /* First span that ends after a time; spans of a lane do not overlap. */
  function firstAfter(lane, time) {
    let low = 0, high = lane.size;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane.to[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  weft.timeline = (element, data, options) => {
    const o = { time: weft.time, names: [], devices: [], ...options };
    const lanes = data.lanes.map(unpack);
    const chain = new Set(data.chain || []);
    const state = { from: 0, to: data.end || 1, lane: 0, item: -1 };
    const listeners = [];
    let width = 0, left = 0, plot = null, height = 0;

    const tools = weft.make("div", { class: "weft-tools" });
    const button = (label, title, act) => {
      const made = weft.make("button", { type: "button", "aria-label": title, title }, label);
      made.addEventListener("click", act);
      tools.append(made);
    };
    button("+", "Zoom in", () => zoom(0.5));
    button("\u2212", "Zoom out", () => zoom(2));
    button("\u2190", "Earlier", () => pan(-0.25));
    button("\u2192", "Later", () => pan(0.25));
    button("Fit", "Show everything", () => view(0, data.end));
    const range = weft.make("span", { class: "weft-range soft small", "aria-live": "polite" });
    tools.append(range);
    const frame = weft.make("div", {
      class: "weft-frame", tabindex: "0", role: "group", "aria-roledescription": "timeline",
      "aria-label": o.label || "Timeline. Arrow left and right move, plus and minus zoom, arrow up and down choose a row, comma and full stop step through it, 0 shows everything.",
    });
    element.classList.add("weft-figure");
    element.replaceChildren(tools, frame);

    function view(from, to) {
      const least = Math.max(data.end / 1e6, 1e-9);
      let length = Math.min(Math.max(to - from, least), data.end || 1);
      from = Math.min(Math.max(from, 0), (data.end || 1) - length);
      state.from = from;
      state.to = from + length;
      if (width) render();
      for (const call of listeners) call(state.from, state.to);
    }
    const pan = (share) => view(state.from + share * (state.to - state.from), state.to + share * (state.to - state.from));
    function zoom(factor, at) {
      const centre = at === undefined ? (state.from + state.to) / 2 : at;
      view(centre - (centre - state.from) * factor, centre + (state.to - centre) * factor);
    }
    const x = (time) => left + ((time - state.from) / (state.to - state.from)) * (width - left - 1);
    const timeAt = (pixel) => state.from + ((pixel - left) / (width - left - 1)) * (state.to - state.from);

    function layout() {
      left = width < 560 ? 8 : Math.min(160, 22 + 8.3 * Math.max(...lanes.map((lane) => lane.name.length), 4));
      let y = TOP + (data.marks && data.marks.length ? 22 : 0), before = null;
      for (const lane of lanes) {
        if (before !== null && before !== lane.device) y += GROUP;
        lane.head = before !== lane.device;
        if (lane.head && left < 20) y += 18;
        before = lane.device;
        lane.y = y;
        lane.tall = TALL[lane.role] || 20;
        y += lane.tall + 2;
      }
      height = y + BOTTOM;
    }

    function tone(lane, i) {
      if (lane.role !== "block" && lane.role !== "link") return lane.role;
      return lane.item[i] < 0 ? "other" : TONES[data.kinds[lane.item[i] % data.kinds.length]];
    }

    /* Spans narrower than a pixel become runs with their neighbours. */
    function paths(lane, texts) {
      const found = {}, add = (name, a, b) => {
        const w = Math.max(b - a, 0.7);
        found[name] = (found[name] || "") + `M${a.toFixed(1)} ${lane.y}h${w.toFixed(1)}v${lane.tall}h${(-w).toFixed(1)}z`;
      };
      let runFrom = null, runTo = 0, runTone = "", inkFrom = null, inkTo = 0;
      const flush = () => {
        if (runFrom !== null) add(runTone, runFrom, runTo);
        runFrom = null;
      };
      /* The chain that decides is a line at the foot of its ops. */
      const ink = (a, b) => {
        if (inkFrom !== null && a !== null && a - inkTo < 1) return (inkTo = Math.max(inkTo, b));
        if (inkFrom !== null) found.chain = (found.chain || "") + `M${inkFrom.toFixed(1)} ${lane.y + lane.tall - 3}h${Math.max(inkTo - inkFrom, 0.7).toFixed(1)}v3H${inkFrom.toFixed(1)}z`;
        [inkFrom, inkTo] = [a, b];
      };
      for (let i = firstAfter(lane, state.from); i < lane.size && lane.from[i] < state.to; i++) {
        const a = Math.max(x(lane.from[i]), left), b = Math.min(x(lane.to[i]), width - 1), name = tone(lane, i);
        if (lane.role === "compute" && chain.has(lane.item[i])) ink(a, b);
        if (b - a < 2.5) {
          if (runFrom !== null && runTone === name && a - runTo < 1) runTo = Math.max(runTo, b);
          else {
            flush();
            [runFrom, runTo, runTone] = [a, b, name];
          }
          continue;
        }
        flush();
        add(name, a + 0.35, b - 0.35);
        if (b - a > 16 && lane.tall >= 20 && texts.length < 400) texts.push([a, b, lane, label(lane, i, b - a)]);
      }
      flush();
      ink(null, 0);
      return found;
    }

    function label(lane, i, room) {
      const item = lane.item[i], letters = Math.floor((room - 6) / 6.6);
      if (item < 0) return "";
      if (lane.role === "block") {
        const batch = String(Math.floor(item / data.blocks.length));
        return batch.length <= letters ? batch : "";
      }
      const name = o.names[item] || "";
      if (letters < 4) return "";
      return name.length <= letters ? name : "\u2026" + name.slice(1 - letters);
    }

    function render() {
      const svg = weft.draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
      const count = Math.max(2, Math.floor((width - left) / 110));
      for (const mark of weft.ticks(state.from, state.to, count)) {
        const at = x(mark);
        if (at < left - 1 || at > width) continue;
        svg.append(weft.draw("line", { x1: at, x2: at, y1: TOP - 4, y2: height - BOTTOM + 4, class: "weft-rule" }));
        const anchor = at < left + 24 ? "start" : at > width - 36 ? "end" : "middle";
        svg.append(weft.draw("text", { x: at, y: height - 6, class: "weft-tick", "text-anchor": anchor }, o.time(mark)));
      }
      patterns(svg);
      marks(svg);
      const texts = [];
      for (const lane of lanes) {
        svg.append(weft.draw("rect", { x: left, y: lane.y, width: Math.max(1, width - left - 1), height: lane.tall, class: "weft-lane" }));
        if (lane.head) {
          const narrow = left < 20;
          svg.append(weft.draw("text", {
            x: narrow ? left : left - 10, y: narrow ? lane.y - 5 : lane.y + lane.tall / 2 + 4,
            class: "weft-name", "text-anchor": narrow ? "start" : "end",
          }, lane.name.length > 20 && !narrow ? lane.name.slice(0, 19) + "\u2026" : lane.name));
        }
        for (const [name, d] of Object.entries(paths(lane, texts))) {
          svg.append(weft.draw("path", { d, class: "weft-" + name }));
          if (PATTERNS[name]) svg.append(weft.draw("path", { d, class: "weft-over", fill: `url(#weft-${name}-pattern)` }));
        }
      }
      for (const [a, b, lane, text] of texts) {
        if (text) svg.append(weft.draw("text", { x: (a + b) / 2, y: lane.y + lane.tall / 2 + 4, class: "weft-inside", "text-anchor": "middle" }, text));
      }
      plot = svg;
      chosen(svg);
      frame.replaceChildren(svg, thumb());
      const whole = state.to - state.from >= data.end * 0.9999;
      range.textContent = whole ? "everything" : `${o.time(state.from)} to ${o.time(state.to)}`;
    }

    function marks(svg) {
      for (const mark of data.marks || []) {
        const a = Math.max(x(mark.from), left), b = Math.min(x(mark.to), width - 1);
        if (b - a < 1) continue;
        svg.append(weft.draw("rect", { x: a + 1, y: TOP - 6, width: Math.max(0, b - a - 2), height: 20, rx: 4, class: "weft-mark" + (mark.name.startsWith("repetend") ? " weft-mark-main" : "") }));
        if (mark.from > state.from) svg.append(weft.draw("line", { x1: a, x2: a, y1: TOP - 6, y2: height - BOTTOM, class: "weft-mark-line" }));
        if (b - a > 7 * mark.name.length) svg.append(weft.draw("text", { x: (a + b) / 2, y: TOP + 8, class: "weft-mark-name", "text-anchor": "middle" }, mark.name));
      }
    }

    /* Where the window stands in the whole. */
    function thumb() {
      const bar = weft.draw("svg", { width, height: 6, viewBox: `0 0 ${width} 6`, class: "weft-thumb", "aria-hidden": "true" });
      const wide = width - left - 1, end = data.end || 1;
      bar.append(weft.draw("rect", { x: left, y: 1, width: wide, height: 4, rx: 2, class: "weft-lane" }));
      bar.append(weft.draw("rect", { x: left + (state.from / end) * wide, y: 1, width: Math.max(4, ((state.to - state.from) / end) * wide), height: 4, rx: 2, class: "weft-window" }));
      return bar;
    }

    function chosen(svg) {
      const lane = lanes[state.lane];
      if (state.item < 0 || !lane || state.item >= lane.size) return;
      const a = Math.max(x(lane.from[state.item]), left), b = Math.min(x(lane.to[state.item]), width - 1);
      if (b < left || a > width) return;
      svg.append(weft.draw("rect", { x: a - 1.5, y: lane.y - 2, width: Math.max(3, b - a + 3), height: lane.tall + 4, rx: 3, class: "weft-chosen" }));
    }

    function describe(lane, i) {
      const item = lane.item[i], when = `${o.time(lane.from[i])} to ${o.time(lane.to[i])} (${o.time(lane.to[i] - lane.from[i])})`;
      if (item < 0) return [`${-item} together`, `on ${lane.name}`, when];
      if (lane.role === "compute") {
        const lines = [o.names[item] || `op ${item}`, `${(o.kindOf && o.kindOf(item)) || "op"} on ${lane.name}`, when];
        return chain.has(item) ? lines.concat("part of the chain that decides the latency") : lines;
      }
      if (lane.role === "block" || lane.role === "link") {
        const n = data.blocks.length;
        return [data.blocks[item % n], `micro-batch ${Math.floor(item / n)} on ${lane.name}`, when];
      }
      const peer = lane.peer ? o.devices[lane.peer[i]] : "";
      const way = lane.role === "receive" ? `${lane.name} receives it from ${peer}` : `${lane.name} sends it to ${peer}`;
      return [data.tensors[item], `${weft.bytes(data.sizes[item])}; ${way}`, when];
    }

    /* Everything of a lane between two times, as one text: for runs below pixel size. */
    function summary(lane, a, b) {
      let count = 0, busy = 0;
      for (let i = firstAfter(lane, a); i < lane.size && lane.from[i] < b; i++) {
        count += lane.item[i] < 0 ? -lane.item[i] : 1;
        busy += Math.min(lane.to[i], b) - Math.max(lane.from[i], a);
      }
      return { count, busy };
    }

    function hover(event) {
      const box = frame.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
      const lane = lanes.find((l) => py >= l.y - 1 && py <= l.y + l.tall + 1);
      if (!lane || px < left) return weft.note(null);
      const time = timeAt(px), pixel = (state.to - state.from) / (width - left - 1);
      const near = summary(lane, time - pixel, time + pixel);
      if (near.count > 3) {
        const lines = [`${near.count} here`, `on ${lane.name}, around ${o.time(time)}`, "zoom in to tell them apart"];
        return weft.note(lines, event.clientX, event.clientY);
      }
      const i = firstAfter(lane, time - pixel);
      if (i < lane.size && lane.from[i] <= time + pixel) weft.note(describe(lane, i), event.clientX, event.clientY);
      else weft.note([`${lane.name} ${lane.role === "compute" || lane.role === "block" ? "idles" : "moves nothing"}`, `around ${o.time(time)}`], event.clientX, event.clientY);
    }

    function choose(laneNumber, item, bring) {
      const lane = lanes[laneNumber];
      if (!lane || !lane.size) return;
      state.lane = laneNumber;
      state.item = Math.max(0, Math.min(lane.size - 1, item));
      const a = lane.from[state.item], b = lane.to[state.item], length = state.to - state.from;
      if (bring || a < state.from || b > state.to) {
        const wanted = bring ? Math.min(length, Math.max((b - a) * 12, data.end / 1e4)) : length;
        view((a + b) / 2 - wanted / 2, (a + b) / 2 + wanted / 2);
      } else render();
      const box = frame.getBoundingClientRect();
      weft.note(describe(lane, state.item), box.left + Math.max(left, Math.min(x((a + b) / 2), width - 40)), box.top + lane.y + lane.tall);
    }

    function key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const lane = lanes[state.lane];
      const step = (by) => (state.item < 0 ? firstAfter(lane, state.from) : state.item + by);
      const acts = {
        ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
        0: () => view(0, data.end), Home: () => view(0, state.to - state.from), End: () => view(data.end - state.to + state.from, data.end),
        ".": () => choose(state.lane, step(1)), ",": () => choose(state.lane, step(-1)),
        ArrowDown: () => row(1), ArrowUp: () => row(-1),
        Escape: () => ((state.item = -1), weft.note(null), render()),
      };
      if (!acts[event.key]) return;
      event.preventDefault();
      acts[event.key]();
    }
    function row(by) {
      const next = Math.max(0, Math.min(lanes.length - 1, state.lane + by));
      choose(next, firstAfter(lanes[next], state.item < 0 ? state.from : lanes[state.lane].from[state.item]));
    }

    let grip = null;
    frame.addEventListener("keydown", key);
    frame.addEventListener("blur", () => weft.note(null));
    frame.addEventListener("pointerdown", (event) => {
      grip = { x: event.clientX, from: state.from, to: state.to };
      frame.setPointerCapture(event.pointerId);
    });
    frame.addEventListener("pointermove", (event) => {
      if (!grip) return hover(event);
      const moved = ((grip.x - event.clientX) / (width - left - 1)) * (grip.to - grip.from);
      if (Math.abs(grip.x - event.clientX) > 2) weft.note(null), view(grip.from + moved, grip.to + moved);
    });
    for (const name of ["pointerup", "pointercancel"]) frame.addEventListener(name, () => (grip = null));
    frame.addEventListener("pointerleave", () => grip || weft.note(null));
    frame.addEventListener("dblclick", (event) => zoom(0.4, timeAt(event.clientX - frame.getBoundingClientRect().left)));
    frame.addEventListener("wheel", (event) => {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!sideways && !event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 250), timeAt(event.clientX - frame.getBoundingClientRect().left));
      else pan((sideways ? event.deltaX : event.deltaY) / (width - left));
    }, { passive: false });

    weft.fit(element, (wide) => {
      width = wide;
      layout();
      render();
    });
    return {
      view,
      onview: (call) => listeners.push(call),
      left: () => left,
      state,
      /* Brings an op into view. */
      show: (op) => {
        for (let number = 0; number < lanes.length; number++) {
          const i = lanes[number].role === "compute" ? lanes[number].item.indexOf(op) : -1;
          if (i >= 0) return choose(number, i, true);
        }
      },
      spanOf: (op) => {
        for (const lane of lanes) {
          const i = lane.role === "compute" ? lane.item.indexOf(op) : -1;
          if (i >= 0) return [lane.from[i], lane.to[i]];
        }
        return null;
      },
    };
  };
})();
