/* weft.report(data): puts the pictures into the places that the page has for them. */
(function () {
  "use strict";
  const weft = window.weft;
  const place = (id) => document.getElementById(id);

  weft.report = (data) => {
    const time = data.unit === "ns" ? weft.time : weft.plain, size = data.unit === "ns" ? weft.bytes : weft.plain;
    const ops = data.ops || { names: [], kinds: [], kind: [], device: [] };
    const kindOf = (op) => ops.kinds[ops.kind[op]] || "op";
    let timeline = null, graph = null;
    if (place("timeline")) {
      timeline = weft.timeline(place("timeline"), data.timeline, { time, names: ops.names, kindOf, devices: data.devices });
    }
    if (place("memory")) {
      const memory = weft.memory(place("memory"), data.memory, { time, size });
      if (timeline) timeline.onview(memory.view);
    }
    if (place("stages")) weft.stages(place("stages"), data, { time });
    if (place("graph")) graph = weft.graph(place("graph"), { ...data.graph, value: data.value }, { time, word: data.kind === "latency" ? "device" : "stage" });
    if (place("curve")) weft.curve(place("curve"), data.progress, { format: time });
    if (place("search")) {
      const about = (op) => {
        if (ops.time) return `, ${time(ops.time[op])}`;
        const span = timeline && timeline.spanOf(op);
        return span ? `, ${time(span[1] - span[0])} at ${time(span[0])}` : "";
      };
      const nodeOf = new Map((data.graph ? data.graph.nodes : []).map((node, i) => [node.device, i]));
      weft.search(place("search"), { names: ops.names, kindOf, whereOf: (op) => data.devices[ops.device[op]], aboutOf: about }, (op) => {
        if (graph) graph.mark(nodeOf.get(ops.device[op]) ?? -1);
        if (timeline) {
          place("timeline").scrollIntoView({ block: "nearest", behavior: "auto" });
          timeline.show(op);
        }
      });
    }
    for (const table of document.querySelectorAll("table.sortable")) weft.table(table);
    document.documentElement.setAttribute("data-ready", "yes");
  };

  const source = place("weft-data");
  if (source) weft.report(JSON.parse(source.textContent));
})();
