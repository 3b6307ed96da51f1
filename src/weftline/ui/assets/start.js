/* Puts the page together, and listens to the server. */
(function () {
  "use strict";
  const weft = window.weft;
  const by = (id) => document.getElementById(id);
  if (location.search) history.replaceState(null, "", location.pathname + location.hash);  // the token has become a cookie

  const dialog = by("report"), frame = by("report-frame"), wait = by("report-wait");
  weft.report = async (id) => {
    frame.hidden = true;
    wait.hidden = false;
    dialog.showModal();
    try {
      const found = await weft.ask("POST", `/api/plans/${id}/files`, { what: "report" });
      if (!dialog.open) return;
      frame.src = found.href + "?view";
      frame.hidden = false;
      wait.hidden = true;
    } catch (error) {
      dialog.close();
      throw error;
    }
  };
  by("report-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => frame.removeAttribute("src"));

  function link(text, kind) {
    by("link").textContent = text;
    by("link").className = `chip ${kind}`;
  }

  /* What stands in the forms is kept by the server, behind its token, so that it survives a reload. */
  function keeper() {
    let timer = 0, told = "";
    const keep = () => {
      clearTimeout(timer);
      const body = JSON.stringify({ fields: weft.fields() });
      if (body === told) return;
      told = body;
      fetch("/api/form", { method: "PUT", body, headers: { "content-type": "application/json" }, keepalive: body.length < 60000 }).catch(() => (told = ""));
    };
    for (const kind of ["input", "change"]) {
      document.addEventListener(kind, (event) => {
        if (!event.target.closest("form.ask")) return;
        clearTimeout(timer);
        timer = setTimeout(keep, 200);
      });
    }
    window.addEventListener("pagehide", keep);
  }

  async function start() {
    const [choices, kept] = await Promise.all([weft.ask("GET", "/api/choices"), weft.ask("GET", "/api/form")]);
    let wanted = null;
    const detail = weft.detail((plan) => {
      location.hash = "#schedules";
      turn();
      schedules.take(plan);
    });
    const compare = weft.compare();
    const list = weft.list(detail.show, compare);
    const begun = (id) => {
      wanted = id;
      if (list.get(id)) show(id);
    };
    const form = weft.form(choices, begun), schedules = weft.scheduleForm(choices, begun);
    form.known(kept);
    weft.fill(kept.fields);
    form.refresh(kept.fields);
    schedules.refresh();
    if (kept.fields.scheduler) by("scheduler").onchange();
    keeper();

    function turn() {
      const kind = location.hash === "#schedules" ? "schedule" : "plan";
      by("form").hidden = kind !== "plan";
      by("schedule-form").hidden = kind !== "schedule";
      for (const link of document.querySelectorAll(".views a")) {
        if (link.hash === (kind === "plan" ? "#plans" : "#schedules")) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
      document.title = kind === "plan" ? "weftline" : "weftline: schedules";
      list.view(kind);
    }
    window.addEventListener("hashchange", turn);
    turn();

    function show(id) {
      wanted = null;
      list.select(id);
      if (window.innerWidth < 940) by("detail").scrollIntoView({ block: "start" });
    }
    const planned = () => schedules.known(list.all());
    let restored = kept.fields.what || "";  // a plan that was chosen is known only when the server has told of it
    const events = new EventSource("/api/events");
    events.addEventListener("open", () => link("connected", "good"));
    events.addEventListener("error", () => link("not connected", "warn"));
    events.addEventListener("state", (event) => {
      const state = JSON.parse(event.data);
      form.known(state);
      list.keep(state.plans);
      planned();
      if (restored) {
        weft.fill({ what: restored });
        schedules.refresh();
        restored = "";
      }
    });
    events.addEventListener("gone", (event) => {
      list.forget(JSON.parse(event.data));
      planned();
    });
    events.addEventListener("plan", (event) => {
      const news = JSON.parse(event.data), before = list.get(news.id);
      list.hear(news);
      if (!before || before.state !== news.state) planned();
      if (news.id === wanted) show(news.id);
    });
    setInterval(() => document.hidden || detail.tick(), 200);
    document.documentElement.dataset.ready = "yes";
  }

  start().catch((error) => {
    link("not connected", "warn");
    weft.say(error.message, true);
  });
})();
