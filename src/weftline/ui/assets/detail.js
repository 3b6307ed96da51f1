/* weft.detail(choices): one plan, while it is searched and afterwards. */
(function () {
  "use strict";
  const weft = window.weft;
  const by = (id) => document.getElementById(id);

  weft.detail = (choices) => {
    const card = by("detail");
    let plan = null, parts = null;

    function figure(kind, title) {
      const number = weft.make("dd", {}, "");
      return { box: weft.make("div", { class: kind }, weft.make("dt", {}, title), number), number };
    }

    function frame() {
      const names = { latency: "Latency", throughput: "Period" };
      parts = {
        id: plan.id,
        state: "",
        chip: weft.make("p", {}),
        value: figure("value", names[plan.objective]),
        bound: figure("bound", "Lower bound"),
        gap: figure("", "Gap"),
        time: figure("", "Search"),
        passing: weft.make("i", {}),
        curve: weft.make("div", { tabindex: "0" }),
        after: weft.make("div", {}),
      };
      const title = `${plan.id}. ${plan.model}${plan.cluster ? " on " + plan.cluster : ""}`;
      const legend = [["line value", "best plan"], ["line bound", "lower bound"], ["gap", "gap: what is not known yet"]];
      card.replaceChildren(
        weft.make("div", { class: "headline" }, weft.make("h2", { id: "detail-title" }, title), parts.chip),
        weft.make("dl", { class: "figures" }, parts.value.box, parts.bound.box, parts.gap.box, parts.time.box),
        parts.curve,
        weft.make("div", { class: "passing" }, parts.passing),
        weft.make("ul", { class: "legend" }, ...legend.map(([key, text]) => weft.make("li", {}, weft.make("span", { class: "key " + key }), text))),
        parts.after
      );
    }

    /* What moves while a search runs. */
    function move() {
      const answer = plan.answer, [seconds, value, bound] = weft.latest(plan);
      const last = answer ? [answer.seconds ?? seconds, answer.value_ns, answer.bound_ns] : [seconds, value, bound];
      const gap = answer ? answer.gap : weft.gapOf(value, bound);
      parts.value.number.textContent = last[1] === null ? "–" : weft.time(last[1]);
      parts.bound.number.textContent = last[2] === null ? "–" : weft.time(last[2]);
      parts.gap.number.textContent = gap === null ? "–" : gap ? weft.percent(gap) : "0 %";
      parts.time.number.textContent = plan.state === "queued" ? "waiting" : plan.rows.length || answer ? `${last[0].toFixed(1)} s` : plan.state === "running" ? "reading" : "–";
      parts.passing.parentElement.hidden = plan.state !== "running";
      parts.passing.style.width = `${Math.min(100, (100 * last[0]) / plan.limit)}%`;
      weft.curve(parts.curve, plan.rows.length || answer ? plan.rows.concat([last]) : []);
    }

    function act(text, does, kind) {
      const button = weft.make("button", { type: "button", class: kind || "" }, text);
      button.addEventListener("click", async () => {
        button.disabled = true;
        try {
          await does();
        } catch (error) {
          weft.say(error.message, true);
        }
        button.disabled = false;
      });
      return button;
    }

    const home = () => `/api/plans/${plan.id}`;
    async function download(what, target) {
      const found = await weft.ask("POST", `${home()}/files`, target ? { what, target } : { what });
      weft.save(found.href);
    }

    let leaving = new AbortController();
    function exports() {
      leaving.abort();
      leaving = new AbortController();
      const buttons = choices.exports.map(([name, text]) => {
        const without = name === "onnx-stages" && !plan.weights;
        const button = act(name, () => download("export", name).finally(() => (menu.open = false)));
        button.append(weft.make("small", {}, without ? `${text}; this model was built without weights` : text));
        button.disabled = without;
        return button;
      });
      const menu = weft.make("details", { class: "menu" }, weft.make("summary", {}, "Export"), weft.make("div", {}, ...buttons));
      menu.addEventListener("keydown", (event) => {
        if (event.key !== "Escape") return;
        menu.open = false;
        menu.querySelector("summary").focus();
      });
      menu.addEventListener("focusout", (event) => menu.contains(event.relatedTarget) || !event.relatedTarget || (menu.open = false));
      document.addEventListener("pointerdown", (event) => menu.contains(event.target) || (menu.open = false), { signal: leaving.signal });
      return menu;
    }

    function actions() {
      const found = [];
      if (plan.state === "running" || plan.state === "queued") {
        const stop = act("Stop, keep the best plan", () => weft.ask("POST", `${home()}/stop`));
        stop.disabled = plan.stopping;
        found.push(stop);
      }
      if (plan.state === "done") {
        found.push(act("Report", () => weft.report(plan.id), "primary"));
        found.push(act("plan.json", () => weft.save(`${home()}/files/plan`)));
        found.push(act("Report file", () => download("report")), act("Trace", () => download("trace")), exports());
      }
      found.push(act("Remove", () => weft.ask("DELETE", home()), "end"));
      return weft.make("div", { class: "acts" }, ...found);
    }

    function after() {
      const answer = plan.answer, found = [];
      if (plan.error) found.push(weft.make("p", { class: plan.state === "failed" ? "wrong" : "soft" }, plan.error));
      if (plan.state === "running" && plan.note) found.push(weft.make("p", { class: "soft small" }, plan.note));
      if (answer) {
        found.push(weft.make("p", { class: "verdict" }, answer.guarantee));
        for (const sentence of answer.warnings) found.push(weft.make("p", { class: "warning" }, sentence));
        if (answer.stopped_by === "interrupted") found.push(weft.make("p", { class: "soft small" }, "Stopped by you: this is the best plan so far."));
      }
      found.push(actions());
      if (answer) {
        found.push(weft.make("div", { class: "parts" }, baselines(answer), answer.stages.length ? stages(answer) : devices(answer)));
        found.push(weft.make("p", { class: "command mono", tabindex: "0", "aria-label": "the same on the command line" }, plan.command.map(quoted).join(" ")));
      }
      parts.after.replaceChildren(...found);
    }

    return {
      show: (chosen) => {
        plan = chosen;
        card.hidden = !plan;
        if (!plan) return;
        if (!parts || parts.id !== plan.id) frame();
        const state = JSON.stringify([plan.state, plan.stopping, plan.note, plan.error]);
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

  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'");

  function track(...pieces) {
    const bar = weft.make("dd", { class: "track" });
    for (const [share, kind] of pieces) {
      const piece = weft.make("i", { class: kind });
      piece.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
      bar.append(piece);
    }
    return bar;
  }

  function baselines(answer) {
    const known = answer.baselines.filter(([, value]) => value !== null);
    const most = Math.max(answer.value_ns, ...known.map(([, value]) => value).filter((value) => value <= 8 * answer.value_ns), 1);
    const rows = [["this plan", answer.value_ns, "own"], ...answer.baselines, ["lower bound", answer.bound_ns, "bound"]];
    const cells = rows.flatMap(([name, value, kind]) => [
      weft.make("dt", { class: kind || "" }, name),
      value === null ? weft.make("dd", {}) : track([value / most, kind || ""]),
      weft.make("dd", { class: "number" }, value === null ? "breaks a limit" : weft.time(value)),
    ]);
    return weft.make("div", {}, weft.make("h3", {}, "Against simpler plans"), weft.make("dl", { class: "bars" }, ...cells));
  }

  function devices(answer) {
    const cells = answer.devices.flatMap(([name, ops, load, memory, limit]) => [
      weft.make("dt", {}, name),
      track([load / Math.max(1, answer.value_ns), "own"]),
      weft.make("dd", { class: "number" }, `${ops} ops, ${weft.bytes(memory)}${limit ? " of " + weft.bytes(limit) : ""}`),
    ]);
    return weft.make("div", {}, weft.make("h3", {}, "Devices: busy time and memory"), weft.make("dl", { class: "bars" }, ...cells));
  }

  function stages(answer) {
    const most = Math.max(1, answer.value_ns);
    const cells = answer.stages.flatMap(([device, ops, compute, enters, leaves, load]) => [
      weft.make("dt", {}, device),
      track([enters / most, "in"], [compute / most, "own"], [leaves / most, "out"]),
      weft.make("dd", { class: "number" }, `${ops} ops, ${weft.time(load)}`),
    ]);
    const keys = [["receive", "enters"], ["compute", "compute"], ["send", "leaves"]];
    return weft.make("div", {},
      weft.make("h3", {}, "Stages, in order"),
      weft.make("dl", { class: "bars" }, ...cells),
      weft.make("ul", { class: "legend" }, ...keys.map(([key, text]) => weft.make("li", {}, weft.make("span", { class: "key " + key }), text)))
    );
  }
})();
