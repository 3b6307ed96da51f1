/* weft.form(choices, onStarted): the question for a plan, and its start. */
(function () {
  "use strict";
  const weft = window.weft;
  const by = (id) => document.getElementById(id);

  /* A form that starts a search: `question` gives what is asked or throws a sentence. */
  weft.starts = (form, wrong, go, address, question, onStarted) => {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      wrong.hidden = true;
      go.disabled = true;
      try {
        onStarted((await weft.ask("POST", address, question())).id);
      } catch (error) {
        wrong.textContent = error.message;
        wrong.hidden = false;
      }
      go.disabled = false;
    });
  };

  /* Names with their descriptions in a select, and the description of the chosen one below. */
  weft.described = (select, note, known) => {
    const kept = select.value, entries = new Map(known);
    select.replaceChildren(...known.map(([name]) => weft.option(name, name)));
    select.value = entries.has(kept) ? kept : known[0][0];
    const tell = () => (note.textContent = entries.get(select.value) || "");
    select.onchange = tell;
    tell();
  };

  weft.seconds_of = (field, longest) => {
    const seconds = Number(field.value);
    if (!(seconds >= 1 && seconds <= longest)) throw new Error(`Time: 1 to ${longest} seconds.`);
    return seconds;
  };

  weft.form = (choices, onStarted) => {
    const form = by("form"), solver = by("solver");
    const models = weft.models(choices), clusters = weft.clusters(choices);
    by("seconds").max = choices.limits.longest;
    const objective = () => form.elements.objective.value;

    function solvers() {
      weft.described(solver, by("solver-note"), choices.solvers[objective()]);
      by("stages-box").hidden = objective() !== "throughput";
    }
    for (const radio of form.elements.objective) radio.addEventListener("change", solvers);

    function question() {
      const asked = { ...models.asked(), ...clusters.asked(), objective: objective(), solver: solver.value };
      asked.seconds = weft.seconds_of(by("seconds"), choices.limits.longest);
      asked.seed = Number(by("seed").value || 0);
      if (by("gap").value) asked.gap = Number(by("gap").value) / 100;
      if (asked.objective === "throughput" && by("stages").value) asked.stages = Number(by("stages").value);
      for (const field of ["shapes", "dims"]) {
        const words = by(field).value.split(/[\s,;]+/).filter(Boolean);
        if (words.length) asked[field] = words;
      }
      return asked;
    }

    weft.starts(form, by("form-error"), by("go"), "/api/plans", question, onStarted);
    solvers();
    return {
      known: (state) => {
        models.known(state.models);
        clusters.known(state.clusters);
      },
      /* What depends on the fields, after they were set to what they were. */
      refresh: (fields) => {
        models.refresh(fields.size);
        solvers();
        if (fields.solver && [...solver.options].some((option) => option.value === fields.solver)) solver.value = fields.solver;
        solver.onchange();
        clusters.refresh();
      },
    };
  };

  /* The fields of all forms by their names, and back. Files, and what only runs once, are not among them. */
  const kept = () => [...document.querySelectorAll("form.ask input, form.ask select, form.ask textarea")].filter((field) => field.type !== "file");
  weft.fields = () => {
    const found = {};
    for (const field of kept()) {
      if (field.type === "radio") {
        if (field.checked) found[field.name] = field.value;
      } else found[field.id] = field.type === "checkbox" ? (field.checked ? "yes" : "") : field.value;
    }
    return found;
  };
  weft.fill = (fields) => {
    for (const field of kept()) {
      const value = fields[field.type === "radio" ? field.name : field.id];
      if (value === undefined) continue;
      if (field.type === "radio") field.checked = field.value === value;
      else if (field.type === "checkbox") field.checked = value === "yes";
      else if (field.tagName !== "SELECT" || [...field.options].some((option) => option.value === value)) field.value = value;
    }
  };
})();
