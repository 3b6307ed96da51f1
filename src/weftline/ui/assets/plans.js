/* weft.list(onSelect, onTick): the plans that the server knows, newest first. */
(function () {
  "use strict";
  const weft = window.weft;
  const by = (id) => document.getElementById(id);

  /* What is known now of a plan that may still run: [seconds, value, bound]. */
  weft.latest = (plan) => {
    let value = null, bound = null;
    for (const row of plan.rows) {
      value = row[1] ?? value;
      bound = row[2] ?? bound;
    }
    const last = plan.rows.length ? plan.rows[plan.rows.length - 1][0] : 0;
    return [plan.state === "running" && plan.rows.length ? last + (performance.now() - plan.heard) / 1000 : last, value, bound];
  };
  weft.gapOf = (value, bound) => (value && bound !== null ? (value - bound) / value : null);

  weft.chip = (plan) => {
    if (plan.state === "queued") return weft.make("span", { class: "chip quiet" }, "waiting");
    if (plan.state === "running") return weft.make("span", { class: "chip live" }, plan.stopping ? "stopping" : "searching");
    if (plan.state === "failed") return weft.make("span", { class: "chip warn" }, "failed");
    if (plan.state === "stopped") return weft.make("span", { class: "chip quiet" }, "stopped");
    const gap = plan.answer.gap;
    return weft.make("span", { class: gap < 0.01 ? "chip good" : "chip" }, gap ? `gap ${weft.percent(gap)}` : "best possible");
  };

  weft.list = (onSelect, onTick) => {
    const plans = new Map(), rows = new Map(), ticked = [];
    let selected = null, chosen = false;
    const list = by("list");

    const ordered = () => [...ticked].sort((a, b) => a - b);

    function item(id) {
      const tick = weft.make("input", { type: "checkbox" }), button = weft.make("button", { type: "button" });
      const row = weft.make("li", {}, weft.make("label", { class: "tick" }, tick, weft.make("span", { class: "hidden-text" }, `compare plan ${id}`)), button);
      button.addEventListener("click", () => {
        chosen = true;
        select(id);
      });
      tick.addEventListener("change", () => {
        if (tick.checked) ticked.push(id);
        else ticked.splice(ticked.indexOf(id), 1);
        while (ticked.length > 2) rows.get(ticked.shift()).tick.checked = false;
        onTick(ordered());
      });
      list.prepend(row);
      return { row, tick, button };
    }

    function draw(plan) {
      if (!rows.has(plan.id)) rows.set(plan.id, item(plan.id));
      const { tick, button } = rows.get(plan.id), [, value] = weft.latest(plan);
      tick.disabled = plan.state !== "done";
      const shown = plan.answer ? plan.answer.value_ns : value;
      const words = [plan.objective, plan.stages ? `${plan.stages} stages` : "", plan.solver === "auto" ? "" : plan.solver, `${plan.limit} s`];
      button.setAttribute("aria-current", String(plan.id === selected));
      button.replaceChildren(
        weft.make("span", { class: "name" }, `${plan.id}. ${plan.model}${plan.cluster ? " on " + plan.cluster : ""}`),
        weft.make("span", { class: "value" }, shown === null ? "" : weft.time(shown)),
        weft.make("span", { class: "sub" }, words.filter(Boolean).join(", ")),
        weft.make("span", { class: "state" }, weft.chip(plan))
      );
    }

    function select(id) {
      const before = selected;
      selected = id;
      for (const number of [before, id]) if (plans.has(number)) draw(plans.get(number));
      onSelect(plans.get(id) || null);
    }

    function frame() {
      by("list-card").hidden = plans.size === 0;
      by("welcome").hidden = plans.size > 0;
      by("list-hint").hidden = [...plans.values()].filter((plan) => plan.state === "done").length < 2;
    }

    function forget(id) {
      plans.delete(id);
      if (rows.has(id)) rows.get(id).row.remove();
      rows.delete(id);
      if (ticked.includes(id)) {
        ticked.splice(ticked.indexOf(id), 1);
        onTick(ordered());
      }
      frame();
      if (selected === id) select(plans.size ? Math.max(...plans.keys()) : null);
    }

    return {
      select,
      forget,
      /* What the server does not know any more is gone. */
      keep: (ids) => [...plans.keys()].filter((id) => !ids.includes(id)).forEach(forget),
      get: (id) => plans.get(id),
      selected: () => plans.get(selected) || null,
      hear: (news) => {
        const before = plans.get(news.id);
        const rows = before ? before.rows.slice(0, news.since).concat(news.rows) : news.rows;
        const heard = news.rows.length || !before ? performance.now() : before.heard;
        const plan = { ...news, rows, heard };
        plans.set(plan.id, plan);
        draw(plan);
        frame();
        if (selected === plan.id || (!before && !chosen)) select(plan.id);
      },
    };
  };
})();
