/* weft.compare(): what differs between two plans, or two schedules, of the same thing. */
(function () {
  "use strict";
  const weft = window.weft;

  weft.compare = () => {
    const card = document.getElementById("compare");
    let turn = 0;

    return async (ids, kind) => {
      const mine = ++turn;
      card.hidden = ids.length < 2;
      if (ids.length < 2) return card.replaceChildren();
      const word = kind === "schedule" ? "schedule" : "plan", first = word[0].toUpperCase() + word.slice(1);
      const title = weft.make("h2", { id: "compare-title" }, `${first} ${ids[0]} and ${word} ${ids[1]}`);
      card.replaceChildren(title, weft.make("p", { class: "soft" }, "comparing ..."));
      try {
        const found = await weft.ask("POST", "/api/compare", { first: ids[0], second: ids[1] });
        if (mine === turn) card.replaceChildren(title, ...(found.kind === "schedule" ? schedules(found, ids) : plans(found, ids)));
      } catch (error) {
        if (mine === turn) card.replaceChildren(title, weft.make("p", { class: "wrong" }, error.message));
      }
    };
  };

  function plans(found, ids) {
    const parts = [weft.make("p", { class: "verdict" }, found.identical ? "The plans are the same." : verdict("Plan", found.value_ns, ids))];
    if (!found.same_problem) {
      parts.push(weft.make("p", { class: "warning" }, "The plans are not for the same devices, costs or limits: " + found.problem_changes.join("; ") + "."));
    }
    const rows = [
      ["value", ...found.value_ns, weft.time, true],
      ["lower bound", ...found.bound_ns, weft.time, false],
      ["gap", ...found.gap, weft.percent, null],
      ...found.load_ns.map(([device, a, b]) => ["load of " + device, a, b, weft.time, false]),
    ];
    parts.push(numbers("plan", ids, rows), weft.make("p", { class: "soft small after" }, moved(found)));
    if (found.moved.length) {
      const open = weft.make("details", {}, weft.make("summary", {}, found.moved_count > found.moved.length ? `The first ${found.moved.length} ops that moved` : "The ops that moved"));
      open.append(table(["op", `plan ${ids[0]}`, `plan ${ids[1]}`], found.moved));
      parts.push(open);
    }
    return parts;
  }

  function schedules(found, ids) {
    const formats = { time: found.unit ? weft.time : weft.plain, size: found.unit ? weft.bytes : weft.plain, count: weft.plain };
    const judged = found.rows.find((row) => row[4]);
    const rows = found.rows.map(([name, a, b, kind, better]) => [name, a, b, formats[kind], better]);
    rows.splice(1, 0, ["gap", ...found.gap, weft.percent, null]);
    return [weft.make("p", { class: "verdict" }, verdict("Schedule", [judged[1], judged[2]], ids)), numbers("schedule", ids, rows)];
  }

  const numbers = (word, ids, rows) => table(["", `${word} ${ids[0]}`, `${word} ${ids[1]}`, "change"], rows.map(([name, a, b, format, judged]) => [
    name, cell(a, format), cell(b, format), judged === null ? "" : change(a, b, judged),
  ]));

  const times = (ratio) => weft.plain(+ratio.toFixed(ratio < 1.1 ? 4 : ratio < 10 ? 2 : 0));

  function verdict(word, [a, b], ids) {
    if (a === b) return "Both have the same value.";
    const [fast, slow] = b < a ? [ids[1], ids[0]] : ids;
    return `${word} ${fast} is ${times(Math.max(a, b) / Math.max(1e-9, Math.min(a, b)))} times as fast as ${word.toLowerCase()} ${slow}.`;
  }

  function moved(found) {
    const words = [`${found.moved_count} ops stand elsewhere`];
    if (found.moves.length) words.push(found.moves.slice(0, 6).map(([way, count]) => `${count} ${way}`).join(", "));
    const text = words.join(": ") + ".";
    const [a, b] = found.only;
    return a || b ? `${text} ${a} ops are only in the first, ${b} only in the second.` : text;
  }

  const cell = (value, format) => (value === null ? "absent" : format(value));

  /* Per cent up to twice as much or half as much; beyond that a factor is easier to read. */
  weft.change = (a, b, judged) => {
    if (a === null || b === null || a === b || !a) return "";
    if (b && b < 2 * a && a < 2 * b) return `${b > a ? "+" : "−"}${weft.percent(Math.abs(b - a) / a)}`;
    if (!b) return "none";
    return `${times(Math.max(a, b) / Math.min(a, b))}x ${b > a ? (judged ? "slower" : "more") : judged ? "faster" : "less"}`;
  };

  function change(a, b, judged) {
    const text = weft.change(a, b, judged);
    return text && judged ? weft.make("span", { class: b < a ? "better" : "worse" }, text) : text;
  }

  function table(head, rows) {
    const line = (cells, tag) => weft.make("tr", {}, ...cells.map((text, i) => weft.make(i ? tag : "th", tag === "th" ? { scope: "col" } : i ? {} : { scope: "row" }, text)));
    const made = weft.make("table", {}, weft.make("thead", {}, line(head, "th")), weft.make("tbody", {}, ...rows.map((row) => line(row, "td"))));
    return weft.make("div", { class: "scroll", tabindex: "0" }, made);
  }
})();
