/* weft.compare(): what differs between two plans. */
(function () {
  "use strict";
  const weft = window.weft;

  weft.compare = () => {
    const card = document.getElementById("compare");
    let turn = 0;

    return async (ids) => {
      const mine = ++turn;
      card.hidden = ids.length < 2;
      if (ids.length < 2) return card.replaceChildren();
      const title = weft.make("h2", { id: "compare-title" }, `Plan ${ids[0]} and plan ${ids[1]}`);
      card.replaceChildren(title, weft.make("p", { class: "soft" }, "comparing ..."));
      try {
        const found = await weft.ask("POST", "/api/compare", { first: ids[0], second: ids[1] });
        if (mine === turn) card.replaceChildren(title, ...shown(found, ids));
      } catch (error) {
        if (mine === turn) card.replaceChildren(title, weft.make("p", { class: "wrong" }, error.message));
      }
    };
  };

  function shown(found, ids) {
    const parts = found.same_objective ? [weft.make("p", { class: "verdict" }, verdict(found, ids))] : [];
    if (!found.same_objective) parts.push(warn("One is a latency, the other a period: they are different things."));
    else if (!found.same_problem) parts.push(warn("The plans answer different questions, so their values say little about each other."));
    const rows = [
      ["value", found.value_ns, weft.time, true],
      ["lower bound", found.bound_ns, weft.time, false],
      ["gap", found.gap, weft.percent, null],
      ...found.load_ns.map(([device, a, b]) => ["load of " + device, [a, b], weft.time, false]),
    ];
    parts.push(table(["", `plan ${ids[0]}`, `plan ${ids[1]}`, "change"], rows.map(([name, [a, b], format, judged]) => [
      name, cell(a, format), cell(b, format), judged === null ? "" : change(a, b, judged && found.same_objective),
    ])));
    parts.push(weft.make("p", { class: "soft small after" }, moved(found)));
    if (found.moved.length) {
      const open = weft.make("details", {}, weft.make("summary", {}, found.moved_count > found.moved.length ? `The first ${found.moved.length} ops that moved` : "The ops that moved"));
      open.append(table(["op", `plan ${ids[0]}`, `plan ${ids[1]}`], found.moved));
      parts.push(open);
    }
    return parts;
  }

  function verdict(found, ids) {
    if (found.identical) return "The plans are the same.";
    const [a, b] = found.value_ns;
    if (a === b) return "Both have the same value.";
    const [fast, slow] = b < a ? [ids[1], ids[0]] : ids, ratio = Math.max(a, b) / Math.max(1, Math.min(a, b));
    return `Plan ${fast} is ${weft.plain(+ratio.toFixed(ratio < 1.1 ? 4 : 2))} times as fast as plan ${slow}.`;
  }

  function moved(found) {
    const words = [`${found.moved_count} ops stand elsewhere`];
    if (found.moves.length) words.push(found.moves.slice(0, 6).map(([way, count]) => `${count} ${way}`).join(", "));
    const text = words.join(": ") + ".";
    const [a, b] = found.only;
    return a || b ? `${text} ${a} ops are only in the first, ${b} only in the second.` : text;
  }

  const warn = (text) => weft.make("p", { class: "warning" }, text);
  const cell = (value, format) => (value === null ? "absent" : format(value));

  function change(a, b, judged) {
    if (a === null || b === null || a === b) return "";
    const text = a ? `${b > a ? "+" : "−"}${weft.percent(Math.abs(b - a) / a)}` : "";
    return judged ? weft.make("span", { class: b < a ? "better" : "worse" }, text) : text;
  }

  function table(head, rows) {
    const line = (cells, tag) => weft.make("tr", {}, ...cells.map((text, i) => weft.make(i ? tag : "th", tag === "th" ? { scope: "col" } : i ? {} : { scope: "row" }, text)));
    const made = weft.make("table", {}, weft.make("thead", {}, line(head, "th")), weft.make("tbody", {}, ...rows.map((row) => line(row, "td"))));
    return weft.make("div", { class: "scroll", tabindex: "0" }, made);
  }
})();
