/* weft.stages(element, data): what each stage of a pipeline costs per inference: receive, compute, send.
   data = {stages: [{name, compute, receive, send, load}], value, bound, overlapped}. */
(function () {
  "use strict";
  const weft = window.weft;
  const PARTS = [["receive", "receives"], ["compute", "computes"], ["send", "sends"]];

  weft.stages = (element, data, options) => {
    const o = { time: weft.time, ...options };
    const step = data.overlapped ? 46 : 34;
    let width = 0;
    element.classList.add("weft-figure");

    function render() {
      const narrow = width < 560, left = narrow ? 8 : 150, row = step + (narrow ? 18 : 0);
      const height = data.stages.length * row + 40, most = Math.max(data.value, 1) * 1.02;
      const x = (time) => left + (time / most) * (width - left - 8);
      const label = "Stages: " + data.stages.map((s, i) => `${i} on ${s.name} ${o.time(s.load)}`).join("; ");
      const svg = weft.draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
      for (const mark of weft.ticks(0, most, narrow ? 3 : 6)) {
        svg.append(weft.draw("line", { x1: x(mark), x2: x(mark), y1: 4, y2: height - 26, class: "weft-rule" }));
        const anchor = mark === 0 ? "start" : x(mark) > width - 40 ? "end" : "middle";
        svg.append(weft.draw("text", { x: x(mark), y: height - 9, class: "weft-tick", "text-anchor": anchor }, o.time(mark)));
      }
      data.stages.forEach((stage, i) => {
        const y = i * row + (narrow ? 24 : 8), worst = stage.load === data.value;
        const name = `${i}  ${stage.name}`;
        svg.append(weft.draw("text", {
          x: narrow ? left : left - 12, y: narrow ? y - 5 : y + 16, class: "weft-name" + (worst ? " weft-worst" : ""), "text-anchor": narrow ? "start" : "end",
        }, (name.length > 21 && !narrow ? name.slice(0, 20) + "\u2026" : name) + (worst && narrow ? ", the slowest" : "")));
        let at = 0;
        PARTS.forEach(([part, word], number) => {
          const from = data.overlapped ? 0 : at, tall = data.overlapped ? 10 : 22, top = data.overlapped ? y + number * 12 - 3 : y;
          if (stage[part] > 0) {
            const bar = weft.draw("rect", { x: x(from), y: top, width: Math.max(0.8, x(from + stage[part]) - x(from) - 0.6), height: tall, rx: 2, class: "weft-" + part });
            bar.addEventListener("pointermove", (event) => weft.note([`stage ${i} on ${stage.name}`, `${word} ${o.time(stage[part])}`, `load ${o.time(stage.load)}`, worst ? "the slowest: it sets the period" : `${o.time(data.value - stage.load)} of room`], event.clientX, event.clientY));
            bar.addEventListener("pointerleave", () => weft.note(null));
            svg.append(bar);
          }
          at += stage[part];
        });
      });
      if (data.bound > 0) svg.append(weft.draw("line", { x1: x(data.bound), x2: x(data.bound), y1: 0, y2: height - 26, class: "weft-bound-mark" }));
      svg.append(weft.draw("line", { x1: x(data.value), x2: x(data.value), y1: 0, y2: height - 26, class: "weft-value-mark" }));
      element.replaceChildren(svg);
    }
    weft.fit(element, (wide) => {
      width = wide;
      render();
    });
  };
})();
