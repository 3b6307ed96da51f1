/* Parts that details are made of: bars, devices, stages, exports, commands. They read answers and make elements. */
(function () {
  "use strict";
  const weft = window.weft;

  /* A button that does something slow; what goes wrong is told. */
  weft.act = (text, does, kind) => {
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
  };

  function track(...pieces) {
    const bar = weft.make("dd", { class: "track" });
    for (const [share, kind] of pieces) {
      const piece = weft.make("i", { class: kind });
      piece.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
      bar.append(piece);
    }
    return bar;
  }

  const bars = (title, cells, ...more) => weft.make("div", {}, weft.make("h3", {}, title), weft.make("dl", { class: "bars" }, ...cells), ...more);

  weft.baselines = (title, own, answer, format, missing) => {
    const known = answer.baselines.map(([, value]) => value).filter((value) => value !== null && value <= 8 * answer.value_ns);
    const most = Math.max(answer.value_ns, ...known, 1);
    const rows = [[own, answer.value_ns, "own"], ...answer.baselines, ["lower bound", answer.bound_ns, "bound"]];
    return bars(title, rows.flatMap(([name, value, kind]) => [
      weft.make("dt", { class: kind || "" }, name),
      value === null ? weft.make("dd", {}) : track([value / most, kind || ""]),
      weft.make("dd", { class: "number" }, value === null ? missing : format(value)),
    ]));
  };

  const limited = (size, memory, limit) => `${size(memory)}${limit === null ? "" : " of " + size(limit)}`;

  weft.planDevices = (answer) => bars("Devices: busy time and memory", answer.devices.flatMap(([name, ops, load, memory, limit]) => [
    weft.make("dt", {}, name),
    track([load / Math.max(1, answer.value_ns), "own"]),
    weft.make("dd", { class: "number" }, `${ops} ops, ${limited(weft.bytes, memory, limit)}`),
  ]));

  weft.scheduleDevices = (answer) => {
    const size = answer.unit ? weft.bytes : weft.plain;
    return bars("Devices: share of the time they work, and memory", answer.devices.flatMap(([name, work, memory, limit]) => [
      weft.make("dt", {}, name),
      track([work / Math.max(1, answer.makespan), "own"]),
      weft.make("dd", { class: "number" }, `${weft.percent(work / Math.max(1, answer.makespan))}, ${limited(size, memory, limit)}`),
    ]));
  };

  weft.legend = (keys) => weft.make("ul", { class: "legend" }, ...keys.map(([key, text]) => weft.make("li", {}, weft.make("span", { class: "key " + key }), text)));

  weft.planStages = (answer) => {
    const most = Math.max(1, answer.value_ns);
    const cells = answer.stages.flatMap(([device, ops, compute, enters, leaves, load]) => [
      weft.make("dt", {}, device),
      track([enters / most, "in"], [compute / most, "own"], [leaves / most, "out"]),
      weft.make("dd", { class: "number" }, `${ops} ops, ${weft.time(load)}`),
    ]);
    return bars("Stages, in order", cells, weft.legend([["receive", "enters"], ["compute", "compute"], ["send", "leaves"]]));
  };

  /* What a schedule looks like; the picture is fetched once for each. */
  weft.picture = (plan) => {
    const box = weft.make("div", { class: "picture" }, weft.make("p", { class: "soft small" }, "drawing ..."));
    weft.ask("GET", `/api/plans/${plan.id}/files/picture`).then((found) => {
      const time = found.unit ? weft.time : weft.plain, used = new Set(found.timeline.kinds);
      const keys = [["forward", "forward"], ["backward", "backward"], ["weight", "gradients of weights"], ["other", "sends"]];
      const place = weft.make("div", {});
      box.replaceChildren(place, weft.legend(keys.filter((_, i) => used.has(i))), weft.make("p", { class: "soft small" }, "Numbers in the blocks are micro-batches."));
      weft.timeline(place, found.timeline, { time, devices: found.devices });
    }).catch((error) => box.replaceChildren(weft.make("p", { class: "soft small" }, error.message)));
    return box;
  };

  /* Targets that can take this answer as buttons; the others with the reason. */
  let leaving = new AbortController();
  weft.exports = (answer, download) => {
    leaving.abort();
    leaving = new AbortController();
    const can = answer.exports.filter(([, , why]) => !why), cannot = answer.exports.filter(([, , why]) => why);
    const buttons = can.map(([name, text]) => {
      const button = weft.act(name, () => download("export", name).finally(() => (menu.open = false)));
      button.append(weft.make("small", {}, text));
      return button;
    });
    if (!can.length) buttons.push(weft.make("p", { class: "soft small inside" }, "No target can take this."));
    if (cannot.length) {
      const rows = cannot.flatMap(([name, , why]) => [weft.make("dt", {}, name), weft.make("dd", {}, why)]);
      buttons.push(weft.make("div", { class: "cannot" }, weft.make("p", { class: "soft small" }, "Not for this one:"), weft.make("dl", {}, ...rows)));
    }
    const menu = weft.make("details", { class: "menu" }, weft.make("summary", {}, "Export"), weft.make("div", { tabindex: "-1" }, ...buttons));
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      menu.open = false;
      menu.querySelector("summary").focus();
    });
    menu.addEventListener("focusout", (event) => menu.contains(event.relatedTarget) || !event.relatedTarget || (menu.open = false));
    document.addEventListener("pointerdown", (event) => menu.contains(event.target) || (menu.open = false), { signal: leaving.signal });
    return menu;
  };

  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'");

  /* The same question for a terminal, with a button that copies it. */
  weft.command = (words) => {
    const text = words.map(quoted).join(" ");
    const line = weft.make("p", { class: "command mono", tabindex: "0", "aria-label": "the same on the command line" }, text);
    const copy = weft.act("Copy", async () => {
      try {
        await navigator.clipboard.writeText(text);
        weft.say("Copied.");
      } catch {
        getSelection().selectAllChildren(line);
        weft.say("Marked: copy it with the keyboard.");
      }
    });
    return weft.make("div", { class: "commands" }, line, copy);
  };
})();
