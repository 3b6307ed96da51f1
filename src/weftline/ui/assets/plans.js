/* weft.list(onSelect, onTick): the plans or schedules that the server knows, newest first. */
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
    if (plan.state === "running") return weft.make("span", { class: "chip live" }, plan.stopping ? "stopping" : plan.phase || "starting");
    if (plan.state === "failed") return weft.make("span", { class: "chip warn" }, "failed");
    if (plan.state === "stopped") return weft.make("span", { class: "chip quiet" }, "stopped");
    const gap = plan.answer.gap;
    return weft.make("span", { class: gap < 0.01 ? "chip good" : "chip" }, gap ? `gap ${weft.percent(gap)}` : "best possible");
  };

  weft.list = (onSelect, onTick) => {
    const plans = new Map(), rows = new Map();
    const kinds = { plan: { ticked: [], selected: null, chosen: false }, schedule: { ticked: [], selected: null, chosen: false } };
    let view = "plan";
    const list = by("list"), here = () => kinds[view];

    const told = () => onTick([...here().ticked].sort((a, b) => a - b), view);

    function item(id, kind) {
      const tick = weft.make("input", { type: "checkbox" }), button = weft.make("button", { type: "button" });
      const row = weft.make("li", {}, weft.make("label", { class: "tick" }, tick, weft.make("span", { class: "hidden-text" }, `compare ${kind} ${id}`)), button);
      button.addEventListener("click", () => {
        kinds[kind].chosen = true;
        select(id);
      });
      tick.addEventListener("change", () => {
        const ticked = kinds[kind].ticked;
        if (tick.checked) ticked.push(id);
        else ticked.splice(ticked.indexOf(id), 1);
        while (ticked.length > 2) rows.get(ticked.shift()).tick.checked = false;
        frame();
        told();
      });
      list.prepend(row);
      return { row, tick, button };
    }

    function draw(plan) {
      if (!rows.has(plan.id)) rows.set(plan.id, item(plan.id, plan.kind));
      const { button } = rows.get(plan.id), [, value] = weft.latest(plan), time = plan.kind === "plan" || plan.in_ns ? weft.time : weft.plain;
      const shown = plan.answer ? plan.answer.value_ns : value;
      const words = [plan.objective, plan.stages ? `${plan.stages} stages` : "", ...(plan.words || []), plan.solver === "auto" ? "" : plan.solver, `${plan.limit} s`];
      button.setAttribute("aria-current", String(plan.id === kinds[plan.kind].selected));
      button.replaceChildren(
        weft.make("span", { class: "name" }, `${plan.id}. ${plan.title}`),
        weft.make("span", { class: "value" }, shown === null ? "" : time(shown)),
        weft.make("span", { class: "sub" }, words.filter(Boolean).join(", ")),
        weft.make("span", { class: "state" }, weft.chip(plan))
      );
    }

    function select(id) {
      const kind = plans.has(id) ? plans.get(id).kind : view, before = kinds[kind].selected;
      kinds[kind].selected = id;
      for (const number of [before, id]) if (plans.has(number)) draw(plans.get(number));
      if (kind === view) onSelect(plans.get(id) || null);
    }

    /* Only answers about the same thing can be ticked together: never a latency and a period, never two models. */
    function frame() {
      const mine = [...plans.values()].filter((plan) => plan.kind === view), done = mine.filter((plan) => plan.state === "done");
      const first = plans.get(here().ticked[0]), subject = first ? first.answer.subject : null;
      let others = false;
      for (const plan of plans.values()) {
        const { row, tick } = rows.get(plan.id), other = subject !== null && plan.answer && plan.answer.subject !== subject;
        row.hidden = plan.kind !== view;
        tick.disabled = plan.state !== "done" || Boolean(other && plan.kind === view);
        others = others || Boolean(other && plan.kind === view);
      }
      by("list-card").hidden = mine.length === 0;
      by("welcome").hidden = view !== "plan" || mine.length > 0;
      by("welcome-schedule").hidden = view !== "schedule" || mine.length > 0;
      by("list-title").textContent = view === "plan" ? "Plans" : "Schedules";
      by("list-hint").hidden = done.length < 2;
      const rule = view === "plan" ? "same model and objective" : "same blocks and aim";
      by("list-hint").textContent = others ? `Only those of the ${rule} can be compared with it.` : `Tick two of the ${rule} to compare them.`;
    }

    function forget(id) {
      const plan = plans.get(id);
      if (!plan) return;
      plans.delete(id);
      if (rows.has(id)) rows.get(id).row.remove();
      rows.delete(id);
      const { ticked } = kinds[plan.kind];
      if (ticked.includes(id)) ticked.splice(ticked.indexOf(id), 1);
      frame();
      if (plan.kind === view) told();
      const left = [...plans.values()].filter((other) => other.kind === plan.kind).map((other) => other.id);
      if (kinds[plan.kind].selected === id) {
        kinds[plan.kind].selected = null;
        if (left.length) select(Math.max(...left));
        else if (plan.kind === view) onSelect(null);
      }
    }

    return {
      select,
      forget,
      /* Which kind is shown. */
      view: (kind) => {
        view = kind;
        frame();
        told();
        onSelect(plans.get(here().selected) || null);
      },
      /* What the server does not know any more is gone. */
      keep: (ids) => [...plans.keys()].filter((id) => !ids.includes(id)).forEach(forget),
      get: (id) => plans.get(id),
      all: () => [...plans.values()],
      hear: (news) => {
        const before = plans.get(news.id);
        const rows = before ? before.rows.slice(0, news.since).concat(news.rows) : news.rows;
        const heard = news.rows.length || !before ? performance.now() : before.heard;
        const plan = { ...news, rows, heard, told: performance.now() };
        plans.set(plan.id, plan);
        draw(plan);
        frame();
        if (kinds[plan.kind].selected === plan.id || (!before && !kinds[plan.kind].chosen)) select(plan.id);
      },
    };
  };
})();
