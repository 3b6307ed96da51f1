/* weft.graph(element, data, options): devices or stages in layers, and what crosses between them.
   data = {nodes: [{name, ops, load, layer}], edges: [{from, to, bytes, count, largest: [[tensor, bytes]]}], value}.
   Layers run from left to right, or from top to bottom where that is too narrow. Gives {mark(node or -1)}. */
(function () {
  "use strict";
  const weft = window.weft;
  const TALL = 62;

  weft.graph = (element, data, options) => {
    const o = { time: weft.time, word: "device", onpick: () => {}, ...options };
    let width = 0, marked = -1;
    element.classList.add("weft-figure");
    const detail = weft.make("div", { class: "weft-detail small", "aria-live": "polite" });
    const picture = weft.make("div", { class: "weft-picture" });
    element.replaceChildren(picture, detail);
    const layers = [];
    data.nodes.forEach((node, i) => (layers[node.layer] = layers[node.layer] || []).push(i));
    const most = Math.max(...data.edges.map((e) => e.bytes), 1);
    const leaps = data.edges.filter((e) => Math.abs(data.nodes[e.to].layer - data.nodes[e.from].layer) !== 1).length;
    const arc = (jump) => Math.min(90, 14 + 9 * jump);

    function places() {
      const count = layers.length, deepest = Math.max(...layers.map((l) => l.length));
      const across = count === 1 || width / count >= 122;
      const wide = across ? Math.min(180, width / count - 58) : Math.min(230, (width - 90) / deepest - 12);
      const leap = (sign) => Math.max(0, ...data.edges.map((e) => sign * (data.nodes[e.to].layer - data.nodes[e.from].layer)).filter((j) => j > 1 || sign < 0));
      const top = leap(1) > 1 ? 34 + arc(leap(1)) : 12, foot = leap(-1) > 0 ? 26 + arc(leap(-1)) : 12;
      const at = [];
      layers.forEach((nodes, layer) => nodes.forEach((node, i) => {
        const gap = 34;
        at[node] = across
          ? { x: (layer + 0.5) * (width / count) - wide / 2, y: top + (i + (deepest - nodes.length) / 2) * (TALL + gap) }
          : { x: 46 + (i + 0.5 + (deepest - nodes.length) / 2) * (wide + 12) - wide / 2, y: 12 + layer * (TALL + 44) };
      }));
      const height = across ? top + deepest * (TALL + 34) - 34 + foot : 12 + count * (TALL + 44) + 12;
      return { at, across, wide, height };
    }

    function way(edge, p) {
      const a = p.at[edge.from], b = p.at[edge.to], jump = data.nodes[edge.to].layer - data.nodes[edge.from].layer;
      if (p.across) {
        if (jump === 1) {
          const y1 = a.y + TALL / 2, y2 = b.y + TALL / 2, x1 = a.x + p.wide, x2 = b.x;
          return { d: `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`, x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 9 };
        }
        const up = jump > 0, x1 = a.x + p.wide * (up ? 0.65 : 0.35), x2 = b.x + p.wide * (up ? 0.35 : 0.65);
        const y = up ? Math.min(a.y, b.y) : Math.max(a.y, b.y) + TALL, far = (up ? -1 : 1) * arc(Math.abs(jump));
        return { d: `M${x1} ${up ? a.y : a.y + TALL}C${x1} ${y + far * 1.3} ${x2} ${y + far * 1.3} ${x2} ${up ? b.y : b.y + TALL}`, x: (x1 + x2) / 2, y: y + far * 0.98 + (up ? -5 : 14), quiet: leaps > 4 && marked < 0 };
      }
      if (jump === 1) {
        const x1 = a.x + p.wide / 2, x2 = b.x + p.wide / 2, y1 = a.y + TALL, y2 = b.y;
        return { d: `M${x1} ${y1}C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`, x: (x1 + x2) / 2 + 8, y: (y1 + y2) / 2 + 4, start: true };
      }
      const down = jump > 0, side = down ? a.x : a.x + p.wide, other = down ? b.x : b.x + p.wide;
      const far = (down ? -1 : 1) * Math.min(40, 14 + 6 * Math.abs(jump));
      return { d: `M${side} ${a.y + TALL / 2}C${side + far * 1.3} ${a.y + TALL / 2} ${other + far * 1.3} ${b.y + TALL / 2} ${other} ${b.y + TALL / 2}`, x: 0, y: 0, quiet: true };
    }

    function render() {
      const p = places();
      const svg = weft.draw("svg", { width, height: p.height, viewBox: `0 0 ${width} ${p.height}`, role: "group", "aria-label": `${data.nodes.length} ${o.word}s and ${data.edges.length} ways between them` });
      const marker = weft.draw("marker", { id: "weft-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto" }, weft.draw("path", { d: "M0 0L8 4L0 8z", class: "weft-arrow" }));
      svg.append(weft.draw("defs", {}, marker));
      const labels = data.edges.length <= 40;
      for (const edge of data.edges) {
        const w = way(edge, p), thick = 1.2 + 4.8 * Math.sqrt(edge.bytes / most);
        const on = marked < 0 || edge.from === marked || edge.to === marked;
        svg.append(weft.draw("path", { d: w.d, class: "weft-way" + (on ? "" : " weft-dim"), "stroke-width": thick.toFixed(1), "marker-end": "url(#weft-arrow)" }));
        const touch = weft.draw("path", { d: w.d, class: "weft-touch" });
        touch.addEventListener("pointermove", (event) => weft.note(told(edge), event.clientX, event.clientY));
        touch.addEventListener("pointerleave", () => weft.note(null));
        touch.addEventListener("click", () => explain(edge));
        svg.append(touch);
        if (labels && !w.quiet && on) svg.append(weft.draw("text", { x: w.x, y: w.y, class: "weft-tick weft-halo", "text-anchor": w.start ? "start" : "middle" }, weft.bytes(edge.bytes, 3)));
      }
      data.nodes.forEach((node, i) => svg.append(box(node, i, p)));
      picture.replaceChildren(svg);
    }

    function box(node, i, p) {
      const { x, y } = p.at[i], letters = Math.floor((p.wide - 16) / 7.2);
      const title = (o.word === "stage" ? `${i}  ` : "") + node.name;
      const group = weft.draw("g", { class: "weft-node" + (marked === i ? " weft-marked" : "") + (marked >= 0 && marked !== i ? " weft-dim" : ""), tabindex: "0", role: "button", "aria-label": `${o.word} ${title}: ${node.ops} ops, ${o.time(node.load)}` });
      group.append(
        weft.draw("rect", { x, y, width: p.wide, height: TALL, rx: 9, class: "weft-box" }),
        weft.draw("text", { x: x + 10, y: y + 20, class: "weft-name" }, title.length > letters ? title.slice(0, Math.max(1, letters - 1)) + "\u2026" : title),
        weft.draw("text", { x: x + 10, y: y + 37, class: "weft-tick" }, p.wide < 112 ? `${node.ops} ops` : `${node.ops} ops, ${o.time(node.load)}`),
        weft.draw("rect", { x: x + 10, y: y + 47, width: p.wide - 20, height: 5, rx: 2.5, class: "weft-lane" }),
        weft.draw("rect", { x: x + 10, y: y + 47, width: Math.max(0, (p.wide - 20) * Math.min(1, node.load / Math.max(data.value, 1))), height: 5, rx: 2.5, class: "weft-compute" }),
      );
      const pick = () => {
        mark(marked === i ? -1 : i);
        o.onpick(marked);
      };
      group.addEventListener("click", pick);
      group.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        pick();
        picture.querySelectorAll(".weft-node")[i].focus();
      });
      return group;
    }

    const told = (edge) => [
      `${data.nodes[edge.from].name} \u2192 ${data.nodes[edge.to].name}: ${weft.bytes(edge.bytes)}`,
      `${edge.count} tensor${edge.count > 1 ? "s" : ""} per inference`,
      ...edge.largest.slice(0, 3).map(([name, size]) => `${weft.bytes(size)}  ${name}`),
    ];

    function explain(edge) {
      const items = edge.largest.map(([name, size]) => weft.make("li", {}, weft.make("span", { class: "number" }, weft.bytes(size)), "  ", weft.make("code", {}, name)));
      const more = edge.count - edge.largest.length;
      if (more > 0) items.push(weft.make("li", { class: "soft" }, `and ${more} more`));
      detail.replaceChildren(weft.make("strong", {}, `${data.nodes[edge.from].name} \u2192 ${data.nodes[edge.to].name}`), ` ${weft.bytes(edge.bytes)} in ${edge.count} tensor${edge.count > 1 ? "s" : ""}`, weft.make("ul", {}, ...items));
    }

    function mark(node) {
      marked = node;
      detail.replaceChildren();
      if (node >= 0) {
        const rows = data.edges.filter((e) => e.from === node || e.to === node).slice(0, 12);
        const list = rows.map((e) => {
          const made = weft.make("button", { type: "button", class: "weft-link" }, e.from === node ? `sends ${weft.bytes(e.bytes)} to ${data.nodes[e.to].name}` : `receives ${weft.bytes(e.bytes)} from ${data.nodes[e.from].name}`);
          made.addEventListener("click", () => explain(e));
          return weft.make("li", {}, made);
        });
        detail.append(weft.make("strong", {}, data.nodes[node].name), ` ${data.nodes[node].ops} ops, ${o.time(data.nodes[node].load)}`, weft.make("ul", {}, ...list));
      }
      if (width) render();
    }
    weft.fit(picture, (wide) => {
      width = wide;
      render();
    });
    return { mark };
  };
})();
