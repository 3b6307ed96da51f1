/* weft.form(choices, onStarted): the question, and its start. */
(function () {
  "use strict";
  const weft = window.weft;
  const by = (id) => document.getElementById(id);

  weft.form = (choices, onStarted) => {
    const form = by("form"), solver = by("solver"), wrong = by("form-error"), go = by("go");
    const models = weft.models(choices), clusters = weft.clusters(choices);
    by("seconds").max = choices.limits.longest;
    const objective = () => form.elements.objective.value;

    function solvers() {
      const kept = solver.value, known = choices.solvers[objective()];
      solver.replaceChildren(...known.map(([name]) => weft.option(name, name)));
      solver.value = known.some(([name]) => name === kept) ? kept : "auto";
      by("stages-box").hidden = objective() !== "throughput";
      describe();
    }
    function describe() {
      const found = choices.solvers[objective()].find(([name]) => name === solver.value);
      by("solver-note").textContent = found ? found[1] : "";
    }
    for (const radio of form.elements.objective) radio.addEventListener("change", solvers);
    solver.addEventListener("change", describe);

    function question() {
      const asked = { ...models.asked(), ...clusters.asked(), objective: objective(), solver: solver.value };
      asked.seconds = Number(by("seconds").value);
      asked.seed = Number(by("seed").value || 0);
      if (by("gap").value) asked.gap = Number(by("gap").value) / 100;
      if (asked.objective === "throughput" && by("stages").value) asked.stages = Number(by("stages").value);
      for (const field of ["shapes", "dims"]) {
        const words = by(field).value.split(/[\s,;]+/).filter(Boolean);
        if (words.length) asked[field] = words;
      }
      if (!(asked.seconds >= 1 && asked.seconds <= choices.limits.longest)) {
        throw new Error(`Time: 1 to ${choices.limits.longest} seconds.`);
      }
      return asked;
    }

    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      wrong.hidden = true;
      go.disabled = true;
      try {
        onStarted((await weft.ask("POST", "/api/plans", question())).id);
      } catch (error) {
        wrong.textContent = error.message;
        wrong.hidden = false;
      }
      go.disabled = false;
    });
    solvers();
    return { known: models.known };
  };
})();
