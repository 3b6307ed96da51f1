/* weft.clusters(choices): a preset, one that was kept, a text that is checked while one writes, or none. */
(function () {
  "use strict";
  const weft = window.weft;
  const by = (id) => document.getElementById(id);
  const EDITED = ":edited", NONE = ":none", KEPT = ":kept:";

  weft.clusters = (choices) => {
    const select = by("preset"), area = by("toml"), note = by("cluster-note"), edit = by("edit"), name = by("keep-name");
    const presets = new Map(choices.presets.map(([preset, text, toml]) => [preset, { text, toml }]));
    const kept = weft.make("optgroup", { label: "Kept by you" });
    let timer = 0, turn = 0, label = "cluster";
    select.append(
      weft.make("optgroup", { label: "Presets" }, ...[...presets.keys()].map((preset) => weft.option(preset, preset))),
      weft.option(EDITED, "my own text"),
      weft.option(NONE, "none: the file has its own devices")
    );
    select.addEventListener("change", () => show());
    area.addEventListener("input", () => {
      select.value = EDITED;
      frame();
      clearTimeout(timer);
      timer = setTimeout(check, 500);
    });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") edit.querySelector("summary").focus();
    });
    const keptName = () => (select.value.startsWith(KEPT) ? select.value.slice(KEPT.length) : "");

    function frame() {
      edit.hidden = select.value === NONE;
      by("forget-cluster").hidden = !keptName();
    }

    async function show() {
      frame();
      tell("", false);
      if (presets.has(select.value)) {
        area.value = presets.get(select.value).toml;
        label = select.value;
        tell(presets.get(select.value).text, false);
      } else if (keptName()) {
        const mine = turn, wanted = keptName();
        try {
          const found = await weft.ask("GET", `/api/clusters/${encodeURIComponent(wanted)}`);
          if (mine !== turn) return;
          area.value = found.text;
          name.value = wanted;
          await check();
        } catch (error) {
          if (mine === turn) tell(error.message, true);
        }
      } else if (select.value === EDITED) {
        edit.open = true;
        await check();
      }
    }

    function tell(text, wrong) {
      turn += 1;
      note.textContent = text;
      note.classList.toggle("wrong", wrong);
      note.classList.toggle("soft", !wrong);
    }

    async function check() {
      tell("checking ...", false);
      const mine = turn;
      let text, wrong = false;
      try {
        const found = await weft.ask("POST", "/api/cluster", { text: area.value });
        wrong = Boolean(found.error);
        if (wrong) text = found.error;
        else {
          if (mine === turn) {
            label = found.label;
            if (!name.value) name.value = found.name.replace(/[^A-Za-z0-9_.-]+/g, "-").slice(0, 60);
          }
          const names = found.devices.slice(0, 8).map(([id]) => id).join(", ");
          text = `${found.count} ${found.count === 1 ? "device" : "devices"}: ${names}${found.count > 8 ? " ..." : ""}`;
          if (found.warnings.length) text += "\n" + found.warnings.join("\n");
        }
      } catch (error) {
        text = error.message;
        wrong = true;
      }
      if (mine === turn) tell(text, wrong);
    }

    /* Devices by name become a text, which is then the cluster. */
    const many = (id) => by(id).value.split(/[,;\n]/).map((word) => word.trim()).filter(Boolean);
    for (const [list, names] of [["known-gpus", choices.devices.gpu], ["known-cpus", choices.devices.cpu], ["known-links", choices.links]])
      by(list).append(...names.map((one) => weft.make("option", { value: one })));
    async function useNamed() {
      const asked = { gpus: many("gpus"), cpus: many("cpus"), links: many("links"), ram: by("ram").value.trim() };
      const found = await weft.ask("POST", "/api/devices", asked);
      if (found.error) throw new Error(found.error);
      area.value = found.text;
      name.value = "";
      select.value = EDITED;
      frame();
      select.dispatchEvent(new Event("change", { bubbles: true }));
      if (found.notes.length) weft.say(found.notes.join("; "));
    }

    const slow = (does) => async () => {
      try {
        await does();
      } catch (error) {
        weft.say(error.message, true);
      }
    };
    by("keep-cluster").addEventListener("click", slow(async () => {
      const wanted = name.value.trim();
      if (!wanted) throw new Error("Give the cluster a name first.");
      await weft.ask("PUT", `/api/clusters/${encodeURIComponent(wanted)}`, { text: area.value });
      add([wanted], false);
      select.value = KEPT + wanted;
      frame();
      select.dispatchEvent(new Event("change", { bubbles: true }));
      weft.say(`Kept as ${wanted}: it will be here the next time.`);
    }));
    by("use-named").addEventListener("click", slow(useNamed));
    by("save-cluster").addEventListener("click", () => weft.saveText(`${label}.toml`, area.value));
    by("forget-cluster").addEventListener("click", slow(async () => {
      await weft.ask("DELETE", `/api/clusters/${encodeURIComponent(keptName())}`);
      select.value = EDITED;
      show();
    }));

    /* The clusters that are kept; those that are gone leave the list. */
    function add(names, all) {
      const before = select.value;
      if (all) for (const option of [...kept.children]) if (!names.includes(option.value.slice(KEPT.length))) option.remove();
      for (const one of names) if (![...kept.children].some((option) => option.value === KEPT + one)) kept.append(weft.option(KEPT + one, one));
      if (kept.children.length && !kept.isConnected) select.prepend(kept);
      if (!kept.children.length) kept.remove();
      select.value = [...select.options].some((option) => option.value === before) ? before : EDITED;
      frame();
    }

    select.value = "laptop";
    show();
    return {
      known: (names) => add(names, true),
      /* What depends on the fields, after they were set. */
      refresh: () => (select.value === EDITED ? (frame(), area.value ? check() : 0) : show()),
      asked: () => {
        if (select.value === NONE) return {};
        if (keptName()) return { kept: keptName() };
        if (select.value === EDITED && note.classList.contains("wrong")) throw new Error(note.textContent);
        return select.value === EDITED ? { cluster: area.value } : { preset: select.value };
      },
    };
  };
})();
