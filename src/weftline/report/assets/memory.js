/* weft.memory(element, data, options): what each device holds over time, beside its limit.
   data = {end, lanes: [{name, time (differences), level, limit or null, peak}]}; options = {time, size}.
   Gives {view(from, to)} so that it can follow a timeline. */
(function () {
  "use strict";
  const weft = window.weft;
  const TALL = 54, SPACE = 30, BOTTOM = 20;

  weft.memory = (element, data, options) => {
    const o = { time: weft.time, size: weft.bytes, ...options };
    const lanes = data.lanes.map((lane) => {
      const at = new Float64Array(lane.time.length);
      lane.time.reduce((sum, d, i) => (at[i] = sum + d), 0);
      return { ...lane, at };
    });
    let width = 0, from = 0, to = data.end || 1;
    element.classList.add("weft-figure");

    const levelAt = (lane, time) => {
      let low = 0, high = lane.at.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (lane.at[middle] <= time) low = middle + 1;
        else high = middle;
      }
      return low ? lane.level[low - 1] : 0;
    };

    function area(lane, x, y, base) {
      let text = `M${x(from)} ${base}V${y(levelAt(lane, from))}`, pixel = -1, top = 0, last = null;
      for (let i = 0; i < lane.at.length; i++) {
        if (lane.at[i] <= from) continue;
        if (lane.at[i] >= to) break;
        const px = Math.round(x(lane.at[i]) * 2) / 2;
        if (px === pixel) top = Math.max(top, lane.level[i]);
        else {
          if (last !== null) text += `H${pixel}V${y(top).toFixed(1)}`;
          [pixel, top] = [px, lane.level[i]];
        }
        last = lane.level[i];
      }
      if (last !== null) text += `H${pixel}V${y(top).toFixed(1)}V${y(last).toFixed(1)}`;
      return text + `H${x(to)}V${base}Z`;
    }

    function render() {
      const height = lanes.length * (TALL + SPACE) + BOTTOM, left = 8;
      const svg = weft.draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told() });
      const x = (time) => +(left + ((time - from) / (to - from)) * (width - left - 2)).toFixed(2);
      lanes.forEach((lane, number) => {
        const base = number * (TALL + SPACE) + SPACE + TALL - 6;
        const most = Math.max(lane.peak, lane.limit !== null && lane.limit < 8 * lane.peak ? lane.limit : 0, 1) * 1.05;
        const y = (level) => base - (level / most) * TALL;
        const full = lane.limit === null ? "" : `, ${weft.percent(lane.peak / Math.max(lane.limit, 1))} of ${o.size(lane.limit)}`;
        svg.append(weft.draw("text", { x: left, y: base - TALL - 8, class: "weft-name" }, lane.name));
        svg.append(weft.draw("text", { x: width - 2, y: base - TALL - 8, class: "weft-tick", "text-anchor": "end" }, `peak ${o.size(lane.peak)}${full}`));
        svg.append(weft.draw("rect", { x: left, y: base - TALL, width: Math.max(1, width - left - 2), height: TALL, class: "weft-lane" }));
        svg.append(weft.draw("path", { d: area(lane, x, y, base), class: "weft-memory" }));
        if (lane.limit !== null && lane.limit <= most) svg.append(weft.draw("line", { x1: left, x2: width - 2, y1: y(lane.limit), y2: y(lane.limit), class: "weft-limit" }));
      });
      for (const mark of weft.ticks(from, to, Math.max(2, Math.floor(width / 130)))) {
        const anchor = x(mark) < 24 ? "start" : x(mark) > width - 30 ? "end" : "middle";
        svg.append(weft.draw("text", { x: x(mark), y: height - 5, class: "weft-tick", "text-anchor": anchor }, o.time(mark)));
      }
      element.replaceChildren(svg);
    }

    function told() {
      return "Memory over time. " + lanes.map((lane) => `${lane.name}: peak ${o.size(lane.peak)}` + (lane.limit === null ? "" : ` of ${o.size(lane.limit)}`)).join("; ");
    }

    element.addEventListener("pointermove", (event) => {
      const box = element.getBoundingClientRect(), lane = lanes[Math.floor((event.clientY - box.top) / (TALL + SPACE))];
      if (!lane) return weft.note(null);
      const time = Math.max(from, from + ((event.clientX - box.left - 8) / (width - 10)) * (to - from));
      const lines = [lane.name, `holds ${o.size(levelAt(lane, time))} at ${o.time(time)}`];
      weft.note(lane.limit === null ? lines : lines.concat(`limit ${o.size(lane.limit)}`), event.clientX, event.clientY);
    });
    element.addEventListener("pointerleave", () => weft.note(null));
    weft.fit(element, (wide) => {
      width = wide;
      render();
    });
    return {
      view: (a, b) => {
        [from, to] = [a, b];
        if (width) render();
      },
    };
  };
})();
