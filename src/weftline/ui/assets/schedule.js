/* weft.scheduleForm(choices, onStarted): the question for a schedule, and its start. */
(function () {
  "use strict";
  const weft = window.weft;
  const by = (id) => document.getElementById(id);

  weft.scheduleForm = (choices, onStarted) => {
    const form = by("schedule-form"), what = by("what"), shapes = new Map(choices.shapes);
    const plans = weft.make("optgroup", { label: "Throughput plans of this page" });
    what.append(weft.make("optgroup", { label: "Well-known shapes, in small numbers" }, ...choices.shapes.map(([name]) => weft.option(name, name))));
    by("schedule-seconds").max = choices.limits.longest;
    weft.described(by("scheduler"), by("scheduler-note"), choices.schedulers);
    const plan = () => (what.value.startsWith("plan:") ? Number(what.value.slice(5)) : null);

    function show() {
      const ours = plan() !== null;
      by("devices-box").hidden = ours;
      by("of-plan").hidden = !ours;
      by("memory").placeholder = ours ? "as planned, or 12 GiB" : "no limit, or 4";
      by("what-note").textContent = ours ? "Its stages become blocks, in time and bytes." : `${shapes.get(what.value) || ""}. Times and memory are small whole numbers.`;
      by("recompute-box").hidden = form.elements.passes.value !== "train";
    }
    what.addEventListener("change", show);
    for (const radio of form.elements.passes) radio.addEventListener("change", show);

    function question() {
      const trains = form.elements.passes.value === "train";
      const asked = { train: trains, objective: by("aim").value, solver: by("scheduler").value, memory: by("memory").value };
      if (plan() !== null) Object.assign(asked, { plan: plan(), recompute: trains && by("recompute").checked, split_backward: trains && by("split").checked });
      else Object.assign(asked, { shape: what.value, devices: Number(by("devices").value) });
      asked.seconds = weft.seconds_of(by("schedule-seconds"), choices.limits.longest);
      asked.seed = Number(by("schedule-seed").value || 0);
      if (by("batches").value) asked.micro_batches = Number(by("batches").value);
      if (by("schedule-gap").value) asked.gap = Number(by("schedule-gap").value) / 100;
      return asked;
    }

    weft.starts(form, by("schedule-error"), by("schedule-go"), "/api/schedules", question, onStarted);
    show();
    return {
      refresh: show,
      /* The plans that can be scheduled now. */
      known: (jobs) => {
        const before = what.value;
        const can = jobs.filter((job) => job.kind === "plan" && job.state === "done" && job.objective === "throughput");
        plans.replaceChildren(...can.map((job) => weft.option(`plan:${job.id}`, `${job.id}. ${job.title}`)));
        if (can.length) what.prepend(plans);
        else plans.remove();
        what.value = [...what.options].some((option) => option.value === before) ? before : choices.shapes[0][0];
        show();
      },
      take: (job) => {
        what.value = `plan:${job.id}`;
        what.dispatchEvent(new Event("change", { bubbles: true }));
        what.focus();
      },
    };
  };
})();
