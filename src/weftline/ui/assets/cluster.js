/* weft.clusters(choices): a preset, a text that is checked while one writes, or none. */
(function () {
  "use strict";
  const weft = window.weft;
  const by = (id) => document.getElementById(id);
  const EDITED = ":edited", NONE = ":none";

  weft.clusters = (choices) => {
    const select = by("preset"), area = by("toml"), note = by("cluster-note"), edit = by("edit");
    const presets = new Map(choices.presets.map(([name, text, toml]) => [name, { text, toml }]));
    let timer = 0, turn = 0;
    select.append(
      ...[...presets.keys()].map((name) => weft.option(name, name)),
      weft.option(EDITED, "my own text"),
      weft.option(NONE, "none: the file has its own devices")
    );
    select.addEventListener("change", show);
    area.addEventListener("input", () => {
      select.value = EDITED;
      clearTimeout(timer);
      timer = setTimeout(check, 500);
    });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") edit.querySelector("summary").focus();
    });

    function show() {
      edit.hidden = select.value === NONE;
      tell("", false);
      if (presets.has(select.value)) {
        area.value = presets.get(select.value).toml;
        tell(presets.get(select.value).text, false);
      } else if (select.value === EDITED) {
        edit.open = true;
        check();
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

    select.value = "laptop";
    show();
    return {
      asked: () => {
        if (select.value === NONE) return {};
        return select.value === EDITED ? { cluster: area.value } : { preset: select.value };
      },
    };
  };
})();
