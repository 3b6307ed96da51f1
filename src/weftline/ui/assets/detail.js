/* weft.detail(onSchedule): one plan or schedule, while it is searched and afterwards. */
(function () {
  "use strict";
  const weft = window.weft;
  const by = (id) => document.getElementById(id);
  const NAMES = { latency: "Latency", throughput: "Period", makespan: "Makespan", "device-span": "Device span" };
  const PHASES = { reading: "reading", loading: "loading", compiling: "compiling" };

  weft.detail = (onSchedule) => {
    const card = by("detail");
    let plan = null, parts = null;
    const format = () => (plan.kind === "plan" || plan.in_ns ? weft.time : weft.plain);

    function figure(kind, title) {
      const number = weft.make("dd", {}, "");
      return { box: weft.make("div", { class: kind }, weft.make("dt", {}, title), number), number };
    }

    function frame() {
      parts = {
        id: plan.id,
        state: "",
        chip: weft.make("p", {}),
        value: figure("value", NAMES[plan.objective] || plan.objective),
        bound: figure("bound", "Lower bound"),
        gap: figure("", "Gap"),
        time: figure("", "Search"),
        top: weft.make("div", {}),
        passing: weft.make("i", {}),
        curve: weft.make("div", { tabindex: "0" }),
        after: weft.make("div", {}),
      };
      const best = plan.kind === "plan" ? "best plan" : "best schedule";
      card.replaceChildren(
        weft.make("div", { class: "headline" }, weft.make("h2", { id: "detail-title" }, `${plan.id}. ${plan.title}`), parts.chip),
        parts.top,
        weft.make("dl", { class: "figures" }, parts.value.box, parts.bound.box, parts.gap.box, parts.time.box),
        parts.curve,
        weft.make("div", { class: "passing" }, parts.passing),
        weft.legend([["line value", best], ["line bound", "lower bound"], ["gap", "gap: what is not known yet"]]),
        parts.after
      );
    }

    /* What a search does before it has found anything, and for how long it has done so. */
    function waiting() {
      if (plan.state === "queued") return "waits until another search is done";
      if (plan.state !== "running") return "";
      const seconds = Math.round((plan.running || 0) + (performance.now() - plan.told) / 1000);
      const what = plan.note || (plan.phase === "searching" ? "searching, nothing found yet" : "starting");
      return seconds > 1 ? `${what} (${seconds} s)` : what;
    }

    /* What moves while a search runs. */
    function move() {
      const answer = plan.answer, [seconds, value, bound] = weft.latest(plan), show = format();
      const last = answer ? [answer.seconds ?? seconds, answer.value_ns, answer.bound_ns] : [seconds, value, bound];
      const gap = answer ? answer.gap : weft.gapOf(value, bound);
      parts.value.number.textContent = last[1] === null ? "–" : show(last[1]);
      parts.bound.number.textContent = last[2] === null ? "–" : show(last[2]);
      parts.gap.number.textContent = gap === null ? "–" : gap ? weft.percent(gap) : "0 %";
      const begins = plan.state === "running" ? PHASES[plan.phase] || "starting" : "–";
      parts.time.number.textContent = plan.state === "queued" ? "waiting" : plan.rows.length || answer ? `${last[0].toFixed(1)} s` : begins;
      parts.passing.parentElement.hidden = plan.state !== "running";
      parts.passing.style.width = `${Math.min(100, (100 * last[0]) / plan.limit)}%`;
      weft.curve(parts.curve, plan.rows.length || answer ? plan.rows.concat([last]) : [], { format: show, empty: waiting() });
    }

    const home = () => `/api/plans/${plan.id}`;
    async function download(what, target) {
      const found = await weft.ask("POST", `${home()}/files`, target ? { what, target } : { what });
      weft.save(found.href);
    }

    function actions() {
      const found = [], file = plan.kind === "plan" ? "plan.json" : "sched.json";
      if (plan.state === "running" || plan.state === "queued") {
        const stop = weft.act("Stop, keep the best so far", () => weft.ask("POST", `${home()}/stop`));
        stop.disabled = plan.stopping;
        found.push(stop);
      }
      if (plan.state === "done") {
        found.push(weft.act("Report", () => weft.report(plan.id), "primary"));
        found.push(weft.act(file, () => weft.save(`${home()}/files/${plan.kind}`)));
        if (plan.own_cluster) found.push(weft.act(`${plan.cluster}.toml`, () => weft.save(`${home()}/files/cluster`)));
        found.push(weft.act("Report file", () => download("report")), weft.act("Trace", () => download("trace")), weft.exports(plan.answer, download));
        if (plan.objective === "throughput") found.push(weft.act("Schedule it", () => onSchedule(plan)));
      }
      found.push(weft.act("Remove", () => weft.ask("DELETE", home()), "end"));
      return weft.make("div", { class: "acts" }, ...found);
    }

    function top(answer) {
      const found = [];
      if (answer && answer.advice) found.push(weft.make("p", { class: "advice" }, answer.advice));
      if (answer && answer.guessed) found.push(weft.make("p", { class: "warning" }, answer.guessed));
      parts.top.replaceChildren(...found);
    }

    function after() {
      const answer = plan.answer, found = [];
      if (plan.error) found.push(weft.make("p", { class: plan.state === "failed" ? "wrong" : "soft" }, plan.error));
      if (plan.state === "running" && plan.note && plan.rows.length) found.push(weft.make("p", { class: "soft small" }, plan.note));
      if (answer) {
        for (const sentence of answer.guarantee ? [answer.guarantee] : answer.words) found.push(weft.make("p", { class: "verdict" }, sentence));
        for (const sentence of answer.warnings) found.push(weft.make("p", { class: "warning" }, sentence));
        if (answer.stopped_by === "interrupted") found.push(weft.make("p", { class: "soft small" }, "Stopped by you: this is the best so far."));
      }
      found.push(actions());
      if (answer && plan.kind === "plan") {
        const side = answer.stages.length ? weft.planStages(answer) : weft.planDevices(answer);
        found.push(weft.make("div", { class: "parts" }, weft.baselines("Against simpler plans", "this plan", answer, weft.time, "breaks a limit"), side));
      } else if (answer) {
        found.push(weft.picture(plan));
        const methods = weft.baselines("What each method reached", "this schedule", answer, format(), "nothing within memory");
        found.push(weft.make("div", { class: "parts" }, methods, weft.scheduleDevices(answer)));
      }
      if (answer) found.push(weft.command(plan.command));
      parts.after.replaceChildren(...found);
      top(answer);
    }

    return {
      show: (chosen) => {
        plan = chosen;
        card.hidden = !plan;
        if (!plan) return;
        if (!parts || parts.id !== plan.id) frame();
        const state = JSON.stringify([plan.state, plan.stopping, plan.note, plan.error, plan.rows.length > 0]);
        if (parts.state !== state) {
          parts.state = state;
          parts.chip.replaceChildren(weft.chip(plan));
          after();
        }
        move();
      },
      tick: () => plan && plan.state === "running" && parts && move(),
    };
  };
})();
